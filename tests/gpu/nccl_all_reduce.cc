#include "tests/gpu/nccl_all_reduce.h"

#include <dlfcn.h>

#include <span>

#include "kernels/cuda/exchange/nccl_library.h"

namespace baton::cuda {

StatusOr<std::unique_ptr<NcclAllReduce>> NcclAllReduce::Create(Collective& host) {
  BATON_ASSIGN_OR_RETURN(const NcclLibrary* const nccl, NcclLibrary::Load());
  std::unique_ptr<NcclAllReduce> result(new NcclAllReduce);
  result->abort_ = nccl->comm_abort;
  // NcclLibrary has opened the library.
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  if (library != nullptr) {
    result->all_reduce_ =
        reinterpret_cast<decltype(&ncclAllReduce)>(dlsym(library, "ncclAllReduce"));
  }
  if (result->all_reduce_ == nullptr) {
    return MakeStatus(StatusCode::kNotFound, "NCCL has no ncclAllReduce");
  }
  ncclUniqueId id{};
  if (host.rank() == 0) {
    BATON_RETURN_IF_ERROR(nccl->ToStatus(nccl->get_unique_id(&id), "ncclGetUniqueId"));
  }
  BATON_RETURN_IF_ERROR(host.BroadcastFromFirst(std::as_writable_bytes(std::span(&id, 1))));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  BATON_RETURN_IF_ERROR(nccl->ToStatus(
      nccl->comm_init_rank_config(&result->communicator_, host.size(), id, host.rank(), &config),
      "ncclCommInitRankConfig"));
  return result;
}

NcclAllReduce::~NcclAllReduce() {
  if (communicator_ != nullptr) abort_(communicator_);
}

Status NcclAllReduce::Launch(const Tensor& x, cudaStream_t stream) const {
  const auto count = static_cast<size_t>(x.rows * x.cols);
  if (all_reduce_(x.data, x.data, count, ncclBfloat16, ncclSum, communicator_, stream) ==
      ncclSuccess) {
    return OkStatus();
  }
  return MakeStatus(StatusCode::kUnavailable, "ncclAllReduce failed");
}

}  // namespace baton::cuda
