#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <functional>
#include <memory>

#include "common/base/status.h"
#include "kernels/cuda/exchange/peer_slots.h"
#include "kernels/tensor.h"

namespace baton::cuda {

// Copies to the other of two tensor ranks on a stream of their own, beside the kernels of a step.
// One thread.
class PartCopies final {
 public:
  // For the current device. Errors: those of CUDA.
  static StatusOr<std::unique_ptr<PartCopies>> Create();
  ~PartCopies();
  PartCopies(const PartCopies&) = delete;

  // When everything before on `step` has finished, copies `part`, which has no gaps, to `to`, then
  // calls `meet` for the exchange of marks with the other rank.
  cudaError_t Copy(const Tensor& part,
                   std::byte* to,
                   int place,
                   cudaStream_t step,
                   const std::function<cudaError_t(cudaStream_t)>& meet);
  // Work that is issued to `step` later runs when the last copy to `place` has ended, on both
  // ranks.
  cudaError_t Await(int place, cudaStream_t step) const;

 private:
  PartCopies() = default;
  Status Open();

  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, PeerSlots::kPlaces> begins_ = {};
  std::array<cudaEvent_t, PeerSlots::kPlaces> ends_ = {};
};

}  // namespace baton::cuda
