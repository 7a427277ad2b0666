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

// An NCCL communicator over the ranks of a Collective. The operations are issued to a stream and
// may be captured into graphs. All ranks must issue the same operations in the same order. Every
// wait of the host is bounded. Abort ends the waits on the device. One thread at a time, except
// where stated.
class NcclCommunicator final {
 public:
  // A send to a peer, or a receive from it.
  struct Transfer {
    int peer = 0;
    bool send = false;
    std::byte* data = nullptr;
    size_t bytes = 0;
  };

  // Connects the ranks of `host` for the current device. `host` must outlive the result. Runs each
  // kind of operation once: the first use of an operation opens further connections, which a graph
  // cannot capture. `limit` is the time limit of each wait for the other ranks. All ranks fail if
  // `library` is an error on one of them. Errors: those of `library` and `host`; Unavailable with
  // NCCL's reason; DeadlineExceeded.
  static StatusOr<std::unique_ptr<NcclCommunicator>> Create(
      const StatusOr<const NcclLibrary*>& library, Collective& host, Duration limit);
  // Graphs that contain operations of this communicator must be destroyed before, and the streams
  // must be idle.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;

  int rank() const { return host_.rank(); }
  int size() const { return host_.size(); }

  // Gathers `bytes` bytes of each rank: `mine` of rank r goes to all + r · bytes. In place: `mine`
  // may be all + rank() · bytes.
  Status AllGather(const std::byte* mine, std::byte* all, size_t bytes, cudaStream_t stream);
  // Copies rank 0's `data` to every rank.
  Status Broadcast(std::byte* data, size_t bytes, cudaStream_t stream);
  // Runs all transfers as one NCCL group. Each peer must issue the matching receives and sends.
  Status Exchange(std::span<const Transfer> transfers, cudaStream_t stream);

  // The asynchronous error of an earlier operation. OK if there is none, or if another thread is
  // inside a call. Any thread.
  Status error();
  // Aborts the operations in flight on this rank's device. Every later call fails. Does not wait.
  // Any thread.
  void Abort();

 private:
  NcclCommunicator(const NcclLibrary& nccl, Collective& host, Duration limit)
      : nccl_(nccl), host_(host), limit_(limit) {}
  Status Connect();
  // Runs each kind of operation once.
  Status WarmUp();
  // Waits until NCCL has issued the call that returned `result`. The communicator is non-blocking,
  // so a call may return ncclInProgress.
  Status AwaitIssued(ncclResult_t result, std::string_view call);
  // Waits until `stream` is idle.
  Status AwaitStream(cudaStream_t stream) const;

  const NcclLibrary& nccl_;
  Collective& host_;
  const Duration limit_;
  int device_ = 0;
  ncclComm_t communicator_ = nullptr;
  std::mutex mutex_;  // held during calls of NCCL, except ncclCommAbort
  std::atomic<bool> aborted_ = false;
  // Runs ncclCommAbort, which ends the kernels and then waits until the graphs are destroyed.
  std::jthread abort_;
};

}  // namespace baton::cuda
