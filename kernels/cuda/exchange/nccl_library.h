#pragma once

#include <nccl.h>

#include <string_view>

#include "common/base/status.h"

namespace baton::cuda {

// NCCL's functions. NCCL is opened at run time, so that only groups of several GPUs and the KV
// transport "nccl" need it. The names are NCCL's without the prefix. Immutable; thread-safe.
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

  // The library of this process, opened by the first call and never closed: communicators and
  // NCCL's own threads may use it until the process ends. Before that, sets the variables of NCCL's
  // that the user has not set: no NVLink multicast, no registration of buffers in graphs, no RAS
  // thread. Errors: NotFound, naming the package; FailedPrecondition for a version that is too old.
  static StatusOr<const NcclLibrary*> Load();

  // What the last call of the communicator has come to: ncclInProgress while NCCL issues it; an
  // error of this call, or of one before it.
  ncclResult_t StateOf(ncclComm_t communicator) const;
  // OK for ncclSuccess and ncclInProgress. Else Unavailable with NCCL's reason.
  Status ToStatus(ncclResult_t result, std::string_view call) const;
};

}  // namespace baton::cuda
