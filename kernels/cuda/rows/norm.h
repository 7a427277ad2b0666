#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "kernels/cuda/primitives/expert_results.h"
#include "kernels/cuda/primitives/peer_parts.h"
#include "kernels/cuda/rows/quantize.h"
#include "kernels/tensor.h"

// The RMS norm of rows, with what is added to the residual before it, which may come from other
// ranks. The residual stream is float32, other tensors are bf16. Strides are multiples of 8.
namespace baton::cuda {

// residual += delta · delta_scales, if `delta` has data; then
// out = residual / √(mean(residual²) + epsilon) · weight. The result goes to `fp8_out` instead of
// `out` if `fp8_out` has data. What is added is rounded to bf16 first, as separate ops would store
// it. Instead of one tensor it may be:
// - the sum of `delta_parts` tensors without gaps, as LaunchRankSum would store it. Part i begins
//   `part_offsets[i]` numbers behind `delta`.
// - with slots in `peers`, the sum of all ranks' parts. `delta` is this rank's part, without gaps:
//   the kernel pushes it to `to`, and adds the parts of the other ranks when they have arrived.
// - with `delta_ends` as well, the columns of all ranks, in whole vectors. Rank r has the columns
//   delta_ends[r - 1] … delta_ends[r] - 1 of `delta`: the kernel pushes its own ones, and takes
//   those of the other ranks from the slots.
// - with `delta_ends` and without slots, the same. The columns of rank r are a tensor without gaps
//   that begins `part_offsets[r]` numbers behind `delta`.
// - the sum of `expert_results`, if it has results. `delta` has no data then.
struct NormLaunch {
  Tensor residual;
  Tensor delta;
  ExpertResults expert_results{};
  int32_t delta_parts = 1;
  std::array<int64_t, kMaxPeerRanks> part_offsets{};
  std::array<int32_t, kMaxPeerRanks> delta_ends{};
  PeerParts peers{};
  PeerTargets to{};
  OutputScales delta_scales{};
  const float* weight = nullptr;
  float epsilon = 0;
  Tensor out;
  Fp8Rows fp8_out{};
};
cudaError_t LaunchNorm(const NormLaunch& launch, cudaStream_t stream);
// Whether LaunchNorm can write rows like these in FP8, and add parts of other ranks to them.
bool NormReadsWholeRows(const Tensor& residual, const Tensor& delta);

}  // namespace baton::cuda
