#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <functional>
#include <memory>
#include <span>

#include "common/base/status.h"
#include "kernels/cuda/exchange/exchange_ops.h"
#include "kernels/cuda/exchange/peer_slots.h"

namespace baton::cuda {

// Copies to other tensor ranks, made by copy engines on a stream of their own while the kernels of
// a step run. One thread.
class PeerPuts final {
 public:
  // Creates a stream for the copies on the current device. Errors: those of CUDA.
  static StatusOr<std::unique_ptr<PeerPuts>> Create();
  ~PeerPuts();
  PeerPuts(const PeerPuts&) = delete;

  // Issues copies into `put_buffer` of the other ranks. They start after the earlier work of `step`
  // and run one after the other. Then calls `exchange_flags` with the copies' stream, to issue a
  // kernel that tells each rank that its put buffer has been filled.
  cudaError_t Copy(std::span<const ByteCopy> copies,
                   int put_buffer,
                   cudaStream_t step,
                   const std::function<cudaError_t(cudaStream_t)>& exchange_flags);
  // Makes `step` wait until the last copies into `put_buffer` have ended on all ranks, and issues
  // `copies` to `step`.
  cudaError_t Await(int put_buffer, std::span<const ByteCopy> copies, cudaStream_t step) const;

 private:
  PeerPuts() = default;
  Status Open();

  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, PeerSlots::kPutBuffers> begins_ = {};
  std::array<cudaEvent_t, PeerSlots::kPutBuffers> ends_ = {};
};

}  // namespace baton::cuda
