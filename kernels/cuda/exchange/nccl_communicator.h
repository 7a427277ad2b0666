#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "kernels/collective.h"
#include "kernels/cuda/exchange/nccl_library.h"

namespace baton::cuda {

// One rank's place in a communicator of NCCL over the ranks of a Collective. The operations are
// issued to a stream and may be captured into graphs; all ranks must issue the same operations in
// the same order. Every host wait is bounded; waits on the device end with Abort. One thread at a
// time, except where stated.
class NcclCommunicator final {
 public:
  // One direction of a point-to-point exchange.
  struct Transfer {
    int peer = 0;
    bool send = false;
    std::byte* data = nullptr;
    size_t bytes = 0;
  };

  // Connects the ranks of `host`, which outlives the result, for the current device, and runs each
  // kind of operation once, because first uses connect further and cannot be captured. `limit`: of
  // each wait for the other ranks. `library` is this rank's: all ranks fail when one has none.
  // Errors: the library's; those of `host`; Unavailable with NCCL's reason; DeadlineExceeded.
  static StatusOr<std::unique_ptr<NcclCommunicator>> Create(
      const StatusOr<const NcclLibrary*>& library, Collective& host, Duration limit);
  // Graphs that contain operations must have been destroyed, and the streams must be idle.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;

  int rank() const { return host_.rank(); }
  int size() const { return host_.size(); }

  // all[r · bytes …] = `mine` of rank r. `mine` may be this rank's place in `all`.
  Status AllGather(const std::byte* mine, std::byte* all, size_t bytes, cudaStream_t stream);
  // Rank 0's `data` on every rank.
  Status Broadcast(std::byte* data, size_t bytes, cudaStream_t stream);
  // All transfers at once. The peers have the opposite ones.
  Status Exchange(std::span<const Transfer> transfers, cudaStream_t stream);

  // The error of an operation that was issued before; OK while there is none, or when the other
  // thread is in the middle of a call. Any thread.
  Status error();
  // Ends the operations under way, on this rank's device. Every later call fails. Any thread.
  // Does not wait.
  void Abort();

 private:
  NcclCommunicator(const NcclLibrary& nccl, Collective& host, Duration limit)
      : nccl_(nccl), host_(host), limit_(limit) {}
  Status Connect();
  Status UseOnce();
  // Waits until a call that returned `result` has been issued.
  Status Settle(ncclResult_t result, std::string_view call);
  Status AwaitStream(cudaStream_t stream) const;

  const NcclLibrary& nccl_;
  Collective& host_;
  const Duration limit_;
  int device_ = 0;
  ncclComm_t communicator_ = nullptr;
  std::mutex mutex_;  // held in calls of NCCL, except Abort's
  std::atomic<bool> aborted_ = false;
  // ncclCommAbort ends kernels first, then waits until graphs are destroyed.
  std::jthread abort_;
};

}  // namespace baton::cuda
