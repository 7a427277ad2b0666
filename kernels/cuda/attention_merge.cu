#include <algorithm>
#include <cstdint>

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_merge.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rounding.h"

namespace baton::cuda {
namespace {

constexpr int kManyPartsWarps = 16;

struct Arguments {
  const MergedRow* list;
  PartialResults partial;
  int q_heads;
  int head_dim;
  __nv_bfloat16* out;
  int64_t out_stride;
};

// Adds parts [first, end) of a row's head.
template <int kPairs>
__device__ __forceinline__ void AddParts(const Arguments& a,
                                         const MergedRow& row,
                                         int head,
                                         int first,
                                         int end,
                                         MergedSum<kPairs>& sum) {
  const int lane = static_cast<int>(threadIdx.x);
  const float* weights = a.partial.weights + int64_t{row.first} * a.q_heads + head;
  const float* values = a.partial.values + (int64_t{row.first} * a.q_heads + head) * a.head_dim;
  // Many parts are under way at once: one after the other, each would wait for memory.
  constexpr int kAtOnce = 32 / kPairs;
  for (; first < end; first += kAtOnce) {
    float2 parts[kAtOnce][kPairs];
    float part_weights[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t at = first + i;
      const bool inside = at < end;
      part_weights[i] = inside ? weights[at * a.q_heads] : 0;
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const int d = 64 * j + 2 * lane;
        parts[i][j] = make_float2(0, 0);
        if (inside && d < a.head_dim) {
          parts[i][j] = *reinterpret_cast<const float2*>(values + at * a.q_heads * a.head_dim + d);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < end) sum.Add(parts[i], part_weights[i]);
    }
  }
}

// Grid [listed row][group of heads]; a warp adds up one head, part after part.
template <int kPairs>
__global__ void MergeRows(const Arguments a) {
  const MergedRow row = a.list[blockIdx.x];
  ReleaseSuccessor();
  WaitForPredecessor();
  const int head = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (row.row < 0 || head >= a.q_heads) return;
  MergedSum<kPairs> sum;
  AddParts(a, row, head, 0, row.count, sum);
  __nv_bfloat16* out = a.out + row.row * a.out_stride + int64_t{head} * a.head_dim;
  sum.Write(out, a.head_dim, static_cast<int>(threadIdx.x));
}

// Grid [listed row][head]; each of the block's warps adds up its share of the parts.
template <int kPairs>
__global__ void __launch_bounds__(32 * kManyPartsWarps) MergeManyParts(const Arguments a) {
  const MergedRow row = a.list[blockIdx.x];
  ReleaseSuccessor();
  WaitForPredecessor();
  if (row.row < 0) return;
  const int head = static_cast<int>(blockIdx.y);
  const int lane = static_cast<int>(threadIdx.x);
  const int warp = static_cast<int>(threadIdx.y);
  const int share = CeilDiv(row.count, kManyPartsWarps);
  const int used = CeilDiv(row.count, share);  // warps
  __shared__ float2 values[kManyPartsWarps][kPairs][32];
  __shared__ float weights[kManyPartsWarps];
  if (warp < used) {
    MergedSum<kPairs> sum;
    AddParts(a, row, head, warp * share, min((warp + 1) * share, row.count), sum);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) values[warp][i][lane] = sum.Value(i);
    if (lane == 0) weights[warp] = sum.Weight();
  }
  __syncthreads();
  if (warp > 0) return;
  MergedSum<kPairs> sum;
  for (int i = 0; i < used; ++i) {
    float2 part[kPairs];
#pragma unroll
    for (int j = 0; j < kPairs; ++j) part[j] = values[i][j][lane];
    sum.Add(part, weights[i]);
  }
  sum.Write(a.out + row.row * a.out_stride + int64_t{head} * a.head_dim, a.head_dim, lane);
}

template <int kPairs>
cudaError_t Launch(const MergeWork& work, const AttentionCall& call) {
  const int q_heads = call.shape.q_heads;
  const Arguments a = {work.list,
                       work.partial,
                       q_heads,
                       call.shape.head_dim,
                       reinterpret_cast<__nv_bfloat16*>(call.out.data),
                       call.out.stride};
  const int warps = work.many_parts ? kManyPartsWarps : std::min(q_heads, 4);
  const dim3 block(32, warps);
  const dim3 grid(work.rows, work.many_parts ? q_heads : CeilDiv(q_heads, warps));
  const auto kernel = work.many_parts ? MergeManyParts<kPairs> : MergeRows<kPairs>;
  if (call.overlapped) return LaunchOverlapped(kernel, grid, block, 0, call.stream, a);
  kernel<<<grid, block, 0, call.stream>>>(a);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchMerge(const MergeWork& work, const AttentionCall& call) {
  switch (PairsOf(call.shape.head_dim)) {
    case 1:
      return Launch<1>(work, call);
    case 2:
      return Launch<2>(work, call);
    default:
      return Launch<4>(work, call);
  }
}

}  // namespace baton::cuda
