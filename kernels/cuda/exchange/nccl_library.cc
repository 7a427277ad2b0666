#include "kernels/cuda/exchange/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

namespace baton::cuda {
namespace {

constexpr const char* kFile = "libnccl.so.2";
constexpr int kMinVersion = NCCL_VERSION(2, 28, 0);

// Sets `function` to the symbol `name`. Returns false when the library does not have it.
template <class Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

std::string VersionText(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

StatusOr<NcclLibrary> Open() {
  // A program that uses NVLink multicast can put the GPUs of a host out of service.
  ::setenv("NCCL_NVLS_ENABLE", "0", /*replace=*/0);
  // NCCL registers the buffers of a graph in a protocol between all ranks. But the leader captures
  // graphs that the other ranks do not capture, because only the leader samples.
  ::setenv("NCCL_GRAPH_REGISTER", "0", /*replace=*/0);
  // RAS, NCCL's diagnostic service, holds a thread, a TCP port and connections to the processes of
  // all communicators until this process ends. It accesses freed memory when these processes come
  // and go (NVIDIA/nccl issue 1996), as the peers of KV transfers do.
  ::setenv("NCCL_RAS_ENABLE", "0", /*replace=*/0);
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return MakeStatus(StatusCode::kNotFound,
                      "groups of several GPUs and the KV transport nccl need NCCL: {}; install the "
                      "package libnccl2 "
                      "(Debian, Ubuntu) or nvidia-nccl-cu13 (PyPI), and let LD_LIBRARY_PATH "
                      "contain the folder of {}",
                      reason == nullptr ? "unknown reason" : reason,
                      kFile);
  }
  NcclLibrary nccl;
  const bool complete = Find(library, "ncclGetVersion", nccl.get_version) &&
                        Find(library, "ncclGetUniqueId", nccl.get_unique_id) &&
                        Find(library, "ncclGetErrorString", nccl.get_error_string) &&
                        Find(library, "ncclGetLastError", nccl.get_last_error) &&
                        Find(library, "ncclCommInitRankConfig", nccl.comm_init_rank_config) &&
                        Find(library, "ncclCommGetAsyncError", nccl.comm_get_async_error) &&
                        Find(library, "ncclCommAbort", nccl.comm_abort) &&
                        Find(library, "ncclAllGather", nccl.all_gather) &&
                        Find(library, "ncclBroadcast", nccl.broadcast) &&
                        Find(library, "ncclSend", nccl.send) &&
                        Find(library, "ncclRecv", nccl.receive) &&
                        Find(library, "ncclGroupStart", nccl.group_start) &&
                        Find(library, "ncclGroupEnd", nccl.group_end);
  int version = 0;
  if (!complete || nccl.get_version(&version) != ncclSuccess || version < kMinVersion) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "{} has version {}; groups of several GPUs and the KV transport nccl need "
                      "NCCL {} or newer",
                      kFile,
                      VersionText(version),
                      VersionText(kMinVersion));
  }
  return nccl;
}

}  // namespace

StatusOr<const NcclLibrary*> NcclLibrary::Load() {
  static const StatusOr<NcclLibrary> library = Open();
  BATON_RETURN_IF_ERROR(library.status());
  return &*library;
}

ncclResult_t NcclLibrary::StateOf(ncclComm_t communicator) const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = comm_get_async_error(communicator, &state);
  return asked == ncclSuccess ? state : asked;
}

Status NcclLibrary::ToStatus(ncclResult_t result, std::string_view call) const {
  if (result == ncclSuccess || result == ncclInProgress) return OkStatus();
  const char* const detail = get_last_error(nullptr);
  return MakeStatus(StatusCode::kUnavailable,
                    "NCCL: {} failed: {}{}{}",
                    call,
                    get_error_string(result),
                    detail == nullptr || *detail == '\0' ? "" : ": ",
                    detail == nullptr ? "" : detail);
}

}  // namespace baton::cuda
