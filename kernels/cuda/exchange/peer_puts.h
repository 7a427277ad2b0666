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

// Copies to other tensor ranks on a stream of their own, beside the kernels of a step.
// One thread.
class PeerPuts final {
 public:
  // For the current device. Errors: those of CUDA.
  static StatusOr<std::unique_ptr<PeerPuts>> Create();
  ~PeerPuts();
  PeerPuts(const PeerPuts&) = delete;

  // When everything before on `step` has finished, makes the copies one after the other, then calls
  // `meet` for the exchange of marks with the other ranks.
  cudaError_t Copy(std::span<const ByteCopy> copies,
                   int place,
                   cudaStream_t step,
                   const std::function<cudaError_t(cudaStream_t)>& meet);
  // Work that is issued to `step` later runs when the last copies to `place` have ended, on all
  // ranks, and `copies` after them.
  cudaError_t Await(int place, std::span<const ByteCopy> copies, cudaStream_t step) const;

 private:
  PeerPuts() = default;
  Status Open();

  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, PeerSlots::kPlaces> begins_ = {};
  std::array<cudaEvent_t, PeerSlots::kPlaces> ends_ = {};
};

}  // namespace baton::cuda
