#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <optional>
#include <variant>

#include "kernels/cuda/rows/quantize.h"
#include "kernels/cuda/sums/expert_results.h"
#include "kernels/cuda/sums/peer_parts.h"
#include "kernels/tensor.h"

// The RMS norm of rows, with what is added to the residual before it, which may come from other
// ranks. The residual stream is float32, other tensors are bf16. Strides are multiples of 8.
namespace baton::cuda {

// What a norm adds to the residual first. It is rounded to bf16, as separate ops would store it.
// Nothing:
struct NoInput {
  bool operator==(const NoInput&) const = default;
};
// delta · scales.
struct DeltaInput {
  Tensor delta;
  OutputScales scales{};
  bool operator==(const DeltaInput&) const = default;
};
// The sum of `parts` tensors without gaps, as LaunchRankSum would store it. Part i begins
// offsets[i] elements after `first`.
struct PartsInput {
  Tensor first;
  int32_t parts = 0;
  std::array<int64_t, kMaxPeerRanks> offsets{};
  bool operator==(const PartsInput&) const = default;
};
// The columns of all ranks, in whole vectors. Rank r has columns ends[r − 1] … ends[r] − 1 of the
// sum, as a tensor without gaps that begins offsets[r] elements after `mine`, this rank's columns.
struct PackedColumnsInput {
  Tensor mine;
  std::array<int32_t, kMaxPeerRanks> ends{};
  std::array<int64_t, kMaxPeerRanks> offsets{};
  bool operator==(const PackedColumnsInput&) const = default;
};
// The sum of all ranks' parts. The kernel pushes `mine`, this rank's part without gaps, to
// slot buffer `slot_buffer` of the other ranks, and adds their parts when they have arrived in its
// own.
struct PeerSumInput {
  Tensor mine;
  int32_t slot_buffer = 0;
  bool operator==(const PeerSumInput&) const = default;
};
// The columns of all ranks, as in PackedColumnsInput. The kernel pushes this rank's columns of
// `whole`, and takes those of the other ranks from the slots.
struct PeerColumnsInput {
  Tensor whole;
  std::array<int32_t, kMaxPeerRanks> ends{};
  int32_t slot_buffer = 0;
  bool operator==(const PeerColumnsInput&) const = default;
};
// The sum of the results of the experts of each row.
struct ExpertsInput {
  ExpertResults results;
  bool operator==(const ExpertsInput&) const = default;
};
using NormInput = std::variant<NoInput,
                               DeltaInput,
                               PartsInput,
                               PackedColumnsInput,
                               PeerSumInput,
                               PeerColumnsInput,
                               ExpertsInput>;
// The tensor of `input` that this rank has in memory; null when there is none.
const Tensor* TensorIn(const NormInput& input);
// The slot buffer through which the kernel exchanges `input`; nothing when it does not.
std::optional<int32_t> SlotBufferOf(const NormInput& input);

// residual += input; then out = residual / √(mean(residual²) + epsilon) · weight. The result goes
// to `fp8_out` instead of `out` if `fp8_out` has data.
struct NormLaunch {
  Tensor residual;
  NormInput input = NoInput{};
  // The slots of SlotBufferOf(input), when it has a value.
  PeerParts peers{};
  PeerTargets to{};
  const float* weight = nullptr;
  float epsilon = 0;
  Tensor out;
  Fp8Rows fp8_out{};
};
cudaError_t LaunchNorm(const NormLaunch& launch, cudaStream_t stream);
// Whether LaunchNorm can write rows like these in FP8, and add parts of other ranks to them.
bool NormReadsWholeRows(const Tensor& residual, const NormInput& input);

}  // namespace baton::cuda
