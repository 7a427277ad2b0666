#include <algorithm>
#include <cstdint>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/latent_rows.h"
#include "kernels/cuda/attention/logits.cuh"
#include "kernels/cuda/attention/lse_accumulator.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

constexpr int kManySplitsWarps = 16;

struct Arguments {
  const CombinedRow* list;
  PartialResults partial;
  int q_heads;
  int value_dim;
  __nv_bfloat16* out;
  int64_t out_stride;
  const float* sinks;  // AttentionArgs::sinks, or null

  template <int kPairs>
  __device__ __forceinline__ void AddSink(int head, LseAccumulator<kPairs>& sum) const {
    if (sinks != nullptr) sum.AddSink(sinks[head] * kLog2E);
  }
};

// Adds splits [first, end) of a row's head.
template <int kPairs>
__device__ __forceinline__ void AddSplits(const Arguments& a,
                                          const CombinedRow& row,
                                          int head,
                                          int first,
                                          int end,
                                          LseAccumulator<kPairs>& sum) {
  const int lane = static_cast<int>(threadIdx.x);
  const float* lse = a.partial.lse + int64_t{row.first} * a.q_heads + head;
  const float* values = a.partial.values + (int64_t{row.first} * a.q_heads + head) * a.value_dim;
  // Many loads are in flight at once; one after the other, each split would wait for memory.
  constexpr int kAtOnce = 32 / kPairs;
  for (; first < end; first += kAtOnce) {
    float2 splits[kAtOnce][kPairs];
    float split_lse[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t at = first + i;
      const bool inside = at < end;
      split_lse[i] = inside ? lse[at * a.q_heads] : 0;
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const int d = 64 * j + 2 * lane;
        splits[i][j] = make_float2(0, 0);
        if (inside && d < a.value_dim) {
          splits[i][j] =
              *reinterpret_cast<const float2*>(values + at * a.q_heads * a.value_dim + d);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < end) sum.Add(splits[i], split_lse[i]);
    }
  }
}

// Grid [listed row][group of heads]. Each warp combines one head, split after split.
template <int kPairs>
__global__ void CombineRows(const Arguments a) {
  const CombinedRow row = a.list[blockIdx.x];
  ReleaseSuccessor();
  WaitForPredecessor();
  const int head = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (row.row < 0 || head >= a.q_heads) return;
  LseAccumulator<kPairs> sum;
  AddSplits(a, row, head, 0, row.count, sum);
  a.AddSink(head, sum);
  __nv_bfloat16* out = a.out + row.row * a.out_stride + int64_t{head} * a.value_dim;
  sum.Write(out, a.value_dim, static_cast<int>(threadIdx.x));
}

// Grid [listed row][head]. The splits are divided over the block's warps, whose results are then
// combined.
template <int kPairs>
__global__ void __launch_bounds__(32 * kManySplitsWarps) CombineManySplits(const Arguments a) {
  const CombinedRow row = a.list[blockIdx.x];
  ReleaseSuccessor();
  WaitForPredecessor();
  if (row.row < 0) return;
  const int head = static_cast<int>(blockIdx.y);
  const int lane = static_cast<int>(threadIdx.x);
  const int warp = static_cast<int>(threadIdx.y);
  const int per_warp = CeilDiv(row.count, kManySplitsWarps);
  const int used = CeilDiv(row.count, per_warp);  // warps
  __shared__ float2 values[kManySplitsWarps][kPairs][32];
  __shared__ float lse[kManySplitsWarps];
  if (warp < used) {
    LseAccumulator<kPairs> sum;
    AddSplits(a, row, head, warp * per_warp, min((warp + 1) * per_warp, row.count), sum);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) values[warp][i][lane] = sum.Value(i);
    if (lane == 0) lse[warp] = sum.Lse();
  }
  __syncthreads();
  if (warp > 0) return;
  LseAccumulator<kPairs> sum;
  for (int i = 0; i < used; ++i) {
    float2 part[kPairs];
#pragma unroll
    for (int j = 0; j < kPairs; ++j) part[j] = values[i][j][lane];
    sum.Add(part, lse[i]);
  }
  a.AddSink(head, sum);
  sum.Write(a.out + row.row * a.out_stride + int64_t{head} * a.value_dim, a.value_dim, lane);
}

template <int kPairs>
cudaError_t Launch(const CombineWork& work, const AttentionLaunch& call, int32_t value_dim) {
  const int q_heads = call.shape.q_heads;
  const Arguments a = {work.list,
                       work.partial,
                       q_heads,
                       value_dim,
                       reinterpret_cast<__nv_bfloat16*>(call.out.data),
                       call.out.stride,
                       call.sinks};
  const int warps = work.many_splits ? kManySplitsWarps : std::min(q_heads, 4);
  const dim3 block(32, warps);
  const dim3 grid(work.rows, work.many_splits ? q_heads : CeilDiv(q_heads, warps));
  const auto kernel = work.many_splits ? CombineManySplits<kPairs> : CombineRows<kPairs>;
  return LaunchOverlapped(kernel, grid, block, 0, call.stream, a);
}

}  // namespace

cudaError_t LaunchCombineSplits(const CombineWork& work, const AttentionLaunch& call) {
  const int32_t dim = call.shape.head_dim;
  switch (PairsPerLane(dim)) {
    case 1:
      return Launch<1>(work, call, dim);
    case 2:
      return Launch<2>(work, call, dim);
    default:
      return Launch<4>(work, call, dim);
  }
}

cudaError_t LaunchCombineLatents(const CombineWork& work,
                                 const AttentionLaunch& call,
                                 int32_t rank) {
  return rank <= kMaxHeadValues ? Launch<kMaxHeadValues / 64>(work, call, rank)
                                : Launch<kPairsOfLatents>(work, call, rank);
}

}  // namespace baton::cuda
