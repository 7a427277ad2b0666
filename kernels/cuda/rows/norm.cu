#include <cuda_bf16.h>

#include "common/base/overloaded.h"
#include "kernels/cuda/primitives/block_reduce.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/primitives/warp_reduce.cuh"
#include "kernels/cuda/rows/norm.h"
#include "kernels/cuda/rows/quantize.cuh"
#include "kernels/cuda/rows/row_threads.h"
#include "kernels/cuda/sums/expert_results.cuh"
#include "kernels/cuda/sums/peer_sum.cuh"

namespace baton::cuda {
namespace {

// The sum and the largest value of a row.
struct Totals {
  float sum;
  float largest;
};

// Reduces both over the thread block, with one synchronisation.
template <bool kLargest>
__device__ __forceinline__ Totals OfBlock(Totals mine) {
  return ReduceOverBlock(mine, Totals{0, 0}, [](Totals totals) {
    totals.sum = SumOverWarp(totals.sum);
    if (kLargest) totals.largest = LargestOverWarp(totals.largest);
    return totals;
  });
}

// The arguments of the norm's kernels.
struct NormArguments {
  float* residual;
  int64_t residual_stride;
  const __nv_bfloat16* delta;
  ExpertResults expert_results;
  int64_t delta_stride;
  int32_t delta_parts;
  std::array<int64_t, kMaxPeerRanks> part_offsets;
  std::array<int32_t, kMaxPeerRanks> delta_ends;
  PeerParts peers;
  PeerTargets to;
  OutputScales delta_scales;
  const float* weight;
  float epsilon;
  __nv_bfloat16* out;
  int64_t out_stride;
  uint8_t* fp8_out;  // [rows][cols], instead of `out`
  float* scales;
  int cols;
};

// What the kernel adds to the residual.
// Of the sums of ranks, the kernels for fewer ranks need fewer registers.
enum class Delta {
  kNone,
  kOne,
  kParts,
  kTwoRanks,
  kFourRanks,
  kRanks,
  kColumns,
  kPackedColumns,
  kExperts
};

constexpr bool IsSumOfRanks(Delta delta) {
  return delta == Delta::kTwoRanks || delta == Delta::kFourRanks || delta == Delta::kRanks;
}

// The rank that has eight columns of a row, and where they are in its slots.
struct ColumnPlace {
  int32_t rank = 0;
  int64_t index;  // of the vector

  __device__ __forceinline__ ColumnPlace(const NormArguments& a, int at) {
    int32_t first = 0;
    while (at >= a.delta_ends[static_cast<size_t>(rank)]) {
      first = a.delta_ends[static_cast<size_t>(rank++)];
    }
    const int32_t cols = a.delta_ends[static_cast<size_t>(rank)] - first;
    index = (int64_t{blockIdx.x} * cols + at - first) / 8;
  }
};

// Eight numbers of a row of delta. A sum is rounded as a separate op would store it.
template <Delta kDelta>
__device__ __forceinline__ void ReadDelta(const NormArguments& a, int at, float (&to)[8]) {
  if constexpr (kDelta == Delta::kExperts) {
    SumOfResults(a.expert_results, blockIdx.x, at, to);
    RoundToBf16(to);
    return;
  }
  const __nv_bfloat16* from = a.delta + blockIdx.x * a.delta_stride + at;
  if constexpr (IsSumOfRanks(kDelta)) {
    constexpr int kPeers = kDelta == Delta::kTwoRanks    ? 1
                           : kDelta == Delta::kFourRanks ? 3
                                                         : kMaxPeerRanks - 1;
    const uint4 own = *reinterpret_cast<const uint4*>(from);
    SumOverRanks<__nv_bfloat16, kPeers>(a.peers, own, (blockIdx.x * a.delta_stride + at) / 8, to);
    RoundToBf16(to);
    return;
  }
  if constexpr (kDelta == Delta::kColumns) {
    const ColumnPlace place(a, at);
    if (place.rank == a.peers.rank) {
      Read8(from, to);
    } else {
      const uint4 bits = TakePart(a.peers, place.rank, place.index);
      Unpack(*reinterpret_cast<const Packed8*>(&bits), to);
    }
    return;
  }
  if constexpr (kDelta == Delta::kPackedColumns) {
    const ColumnPlace place(a, at);
    Read8(a.delta + a.part_offsets[static_cast<size_t>(place.rank)] + place.index * 8, to);
    return;
  }
  if constexpr (kDelta == Delta::kParts) {
    TreeSum<8> sum;
    for (int32_t part = 0; part < a.delta_parts; ++part) {
      sum.Begin(part);
      Read8(from + a.part_offsets[static_cast<size_t>(part)], sum.leaf());
    }
    sum.Total(to);
    RoundToBf16(to);
    return;
  }
  Read8(from, to);
}

// Pushes this rank's part, or columns, of the row. A row waits for no other row of this rank, so
// thread blocks that start late delay nobody for ever.
template <int kVectors, Delta kDelta>
__device__ __forceinline__ void PushRow(const NormArguments& a) {
  const auto* const part = reinterpret_cast<const uint4*>(a.delta);
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int at = static_cast<int>(vector * blockDim.x + threadIdx.x) * 8;
    if (at >= a.cols) continue;
    int64_t index = (blockIdx.x * a.delta_stride + at) / 8;
    const uint4 value = Pushed(part[index]);
    if constexpr (kDelta == Delta::kColumns) {
      const ColumnPlace place(a, at);
      if (place.rank != a.peers.rank) continue;
      index = place.index;
    }
    for (int32_t peer = 0; peer + 1 < a.peers.ranks; ++peer) {
      StoreVolatile(a.to[static_cast<size_t>(peer)] + index, value);
    }
  }
}

// One thread block for each row. A thread holds kVectors vectors of 8 numbers in registers, so that
// the row is read once.
template <int kVectors, Delta kDelta, bool kQuantize>
__global__ void __launch_bounds__(kMaxRowThreads) NormKernel(const NormArguments a) {
  ReleaseSuccessor();
  // Weights are loaded before the wait, so that they have arrived when the sum is computed.
  const bool scaled = kDelta == Delta::kOne && a.delta_scales.rows != nullptr;
  float weights[kVectors][8] = {};
  float delta_scales[kVectors][8];
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int at = static_cast<int>(vector * blockDim.x + threadIdx.x) * 8;
    if (at >= a.cols) continue;
    Read8(a.weight + at, weights[vector]);
    if (scaled) Read8(a.delta_scales.cols + at, delta_scales[vector]);
  }
  WaitForPredecessor();
  if constexpr (IsSumOfRanks(kDelta) || kDelta == Delta::kColumns) {
    PushRow<kVectors, kDelta>(a);
  }
  float* x = a.residual + blockIdx.x * a.residual_stride;
  float values[kVectors][8] = {};
  float squares = 0;
  const float row_scale = scaled ? a.delta_scales.rows[blockIdx.x] : 1.0f;
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int at = static_cast<int>(vector * blockDim.x + threadIdx.x) * 8;
    if (at >= a.cols) continue;
    Read8(x + at, values[vector]);
    if (kDelta != Delta::kNone) {
      float more[8];
      ReadDelta<kDelta>(a, at, more);
      if (scaled) {
#pragma unroll
        for (int i = 0; i < 8; ++i) more[i] *= row_scale * delta_scales[vector][i];
        RoundToBf16(more);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) values[vector][i] += more[i];
      Write8(x + at, values[vector]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) squares = fmaf(values[vector][i], values[vector][i], squares);
  }
  float largest = 0;
  if (kQuantize) {
#pragma unroll
    for (int vector = 0; vector < kVectors; ++vector) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        largest = fmaxf(largest, fabsf(values[vector][i] * weights[vector][i]));
      }
    }
  }
  const Totals totals = OfBlock<kQuantize>({squares, largest});
  const float scale = rsqrtf(totals.sum / static_cast<float>(a.cols) + a.epsilon);
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int at = static_cast<int>(vector * blockDim.x + threadIdx.x) * 8;
    if (at >= a.cols) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) values[vector][i] *= scale * weights[vector][i];
    if (!kQuantize) Write8(a.out + blockIdx.x * a.out_stride + at, values[vector]);
  }
  if (kQuantize) {
    uint8_t* const out = a.fp8_out + blockIdx.x * int64_t{a.cols};
    QuantizeRow(values, totals.largest * scale, a.cols, out, a.scales + blockIdx.x);
  }
}

// For rows of any length; no FP8 output.
__global__ void AnyNormKernel(const NormArguments a) {
  ReleaseSuccessor();
  WaitForPredecessor();
  float* x = a.residual + blockIdx.x * a.residual_stride;
  const OutputScales& scales = a.delta_scales;
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < a.cols; i += static_cast<int>(blockDim.x)) {
    if (a.delta != nullptr) {
      const __nv_bfloat16* delta = a.delta + blockIdx.x * a.delta_stride + i;
      TreeSum<1> sum;
      for (int32_t part = 0; part < a.delta_parts; ++part) {
        sum.Begin(part);
        sum.leaf()[0] = __bfloat162float(delta[a.part_offsets[static_cast<size_t>(part)]]);
      }
      float total[1];
      sum.Total(total);
      float more = __bfloat162float(__float2bfloat16(total[0]));
      if (scales.rows != nullptr) {
        more =
            __bfloat162float(__float2bfloat16(more * (scales.rows[blockIdx.x] * scales.cols[i])));
      }
      x[i] += more;
    }
    squares = fmaf(x[i], x[i], squares);
  }
  const float sum = OfBlock<false>({squares, 0}).sum;
  const float scale = rsqrtf(sum / static_cast<float>(a.cols) + a.epsilon);
  for (int i = static_cast<int>(threadIdx.x); i < a.cols; i += static_cast<int>(blockDim.x)) {
    a.out[blockIdx.x * a.out_stride + i] = __float2bfloat16(x[i] * scale * a.weight[i]);
  }
}

using NormFunction = void (*)(NormArguments);

template <int kVectors, Delta kDelta>
NormFunction NormFor(bool quantize) {
  return quantize ? NormKernel<kVectors, kDelta, true> : NormKernel<kVectors, kDelta, false>;
}

template <int kVectors>
NormFunction NormFor(Delta delta, bool quantize) {
  switch (delta) {
    case Delta::kNone:
      return NormFor<kVectors, Delta::kNone>(quantize);
    case Delta::kOne:
      return NormFor<kVectors, Delta::kOne>(quantize);
    case Delta::kParts:
      return NormFor<kVectors, Delta::kParts>(quantize);
    case Delta::kTwoRanks:
      return NormFor<kVectors, Delta::kTwoRanks>(quantize);
    case Delta::kFourRanks:
      return NormFor<kVectors, Delta::kFourRanks>(quantize);
    case Delta::kRanks:
      return NormFor<kVectors, Delta::kRanks>(quantize);
    case Delta::kColumns:
      return NormFor<kVectors, Delta::kColumns>(quantize);
    case Delta::kPackedColumns:
      return NormFor<kVectors, Delta::kPackedColumns>(quantize);
    case Delta::kExperts:
      return NormFor<kVectors, Delta::kExperts>(quantize);
  }
  return nullptr;
}

Delta KindOf(const NormLaunch& launch) {
  return std::visit(Overloaded{[](const NoInput&) { return Delta::kNone; },
                               [](const DeltaInput&) { return Delta::kOne; },
                               [](const PartsInput&) { return Delta::kParts; },
                               [](const PackedColumnsInput&) { return Delta::kPackedColumns; },
                               [&](const PeerSumInput&) {
                                 if (launch.peers.ranks == 2) return Delta::kTwoRanks;
                                 return launch.peers.ranks <= 4 ? Delta::kFourRanks : Delta::kRanks;
                               },
                               [](const PeerColumnsInput&) { return Delta::kColumns; },
                               [](const ExpertsInput&) { return Delta::kExperts; }},
                    launch.input);
}

// Sets what the kernels read of `input`.
void SetInput(const NormInput& input, NormArguments& to) {
  if (const Tensor* const delta = TensorIn(input); delta != nullptr) {
    to.delta = reinterpret_cast<const __nv_bfloat16*>(delta->data);
    to.delta_stride = delta->stride;
  }
  std::visit(Overloaded{[&](const DeltaInput& one) { to.delta_scales = one.scales; },
                        [&](const PartsInput& sum) {
                          to.delta_parts = sum.parts;
                          to.part_offsets = sum.offsets;
                        },
                        [&](const PackedColumnsInput& columns) {
                          to.delta_ends = columns.ends;
                          to.part_offsets = columns.offsets;
                        },
                        [&](const PeerColumnsInput& columns) { to.delta_ends = columns.ends; },
                        [&](const ExpertsInput& experts) { to.expert_results = experts.results; },
                        [](const auto& /*other*/) {}},
             input);
}

}  // namespace

const Tensor* TensorIn(const NormInput& input) {
  return std::visit(
      Overloaded{[](const DeltaInput& one) { return &one.delta; },
                 [](const PartsInput& sum) { return &sum.first; },
                 [](const PackedColumnsInput& columns) { return &columns.mine; },
                 [](const PeerSumInput& sum) { return &sum.mine; },
                 [](const PeerColumnsInput& columns) { return &columns.whole; },
                 [](const auto& /*other*/) { return static_cast<const Tensor*>(nullptr); }},
      input);
}

std::optional<int32_t> SlotBufferOf(const NormInput& input) {
  if (const auto* const sum = std::get_if<PeerSumInput>(&input)) return sum->slot_buffer;
  if (const auto* const columns = std::get_if<PeerColumnsInput>(&input))
    return columns->slot_buffer;
  return std::nullopt;
}

bool NormReadsWholeRows(const Tensor& residual, const NormInput& input) {
  const Tensor* const delta = TensorIn(input);
  return residual.cols % 8 == 0 && residual.cols <= kMaxFp8Columns && residual.stride % 8 == 0 &&
         (delta == nullptr || delta->stride % 8 == 0);
}

cudaError_t LaunchNorm(const NormLaunch& launch, cudaStream_t stream) {
  const Tensor& residual = launch.residual;
  const Delta delta = KindOf(launch);
  const bool quantize = launch.fp8_out.data != nullptr;
  NormArguments arguments = {
      .residual = reinterpret_cast<float*>(residual.data),
      .residual_stride = residual.stride,
      .delta = nullptr,
      .expert_results = {},
      .delta_stride = 0,
      .delta_parts = 1,
      .part_offsets = {},
      .delta_ends = {},
      .peers = launch.peers,
      .to = launch.to,
      .delta_scales = {},
      .weight = launch.weight,
      .epsilon = launch.epsilon,
      .out = reinterpret_cast<__nv_bfloat16*>(launch.out.data),
      .out_stride = launch.out.stride,
      .fp8_out = reinterpret_cast<uint8_t*>(launch.fp8_out.data),
      .scales = launch.fp8_out.scales,
      .cols = static_cast<int>(residual.cols),
  };
  SetInput(launch.input, arguments);
  if (residual.rows == 0) return cudaSuccess;
  const bool whole = NormReadsWholeRows(residual, launch.input) && launch.out.stride % 8 == 0;
  const auto launch_rows = [&](NormFunction kernel, unsigned threads) {
    return LaunchOverlapped(
        kernel, dim3(static_cast<unsigned>(residual.rows)), dim3(threads), 0, stream, arguments);
  };
  if (!whole) return launch_rows(AnyNormKernel, 256);
  return ForVectors(residual.cols, [&](auto vectors) {
    return launch_rows(NormFor<vectors()>(delta, quantize), ThreadsFor(residual.cols, vectors()));
  });
}

}  // namespace baton::cuda
