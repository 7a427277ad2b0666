#pragma once

#include <nccl.h>

#include <string_view>

#include "common/base/status.h"

namespace baton::cuda {

// The functions of NCCL, under NCCL's names without the prefix. NCCL is opened at run time, because
// only groups of several GPUs and the KV transport "nccl" need it. Immutable; thread-safe.
struct NcclLibrary {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;

  // Returns the library of this process. The first call opens it. It is never closed, because
  // communicators and NCCL's threads may use it until the process ends. Before opening it, the
  // first call turns off NVLink multicast, the registration of buffers in graphs and the RAS
  // thread, unless the user has set these environment variables. Errors: NotFound with the name of
  // the package to install; FailedPrecondition for a version that is too old.
  static StatusOr<const NcclLibrary*> Load();

  // The state of a non-blocking communicator (ncclCommGetAsyncError): ncclInProgress while NCCL
  // issues the last call, or the error of an earlier call.
  ncclResult_t StateOf(ncclComm_t communicator) const;
  // OK for ncclSuccess and ncclInProgress; otherwise Unavailable with NCCL's reason.
  Status ToStatus(ncclResult_t result, std::string_view call) const;
};

}  // namespace baton::cuda
