#include <algorithm>
#include <cstdint>

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_merge.cuh"
#include "kernels/cuda/launch.cuh"

namespace baton::cuda {
namespace {

// Grid [listed row][group of heads]; a warp adds up one head.
template <int kPairs>
__global__ void MergeRows(const MergedRow* list,
                          PartialResults partial,
                          int q_heads,
                          int head_dim,
                          __nv_bfloat16* out,
                          int64_t out_stride) {
  const MergedRow row = list[blockIdx.x];
  ReleaseSuccessor();
  WaitForPredecessor();
  const int lane = threadIdx.x;
  const int head = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (row.row < 0 || head >= q_heads) return;
  MergedSum<kPairs> sum;
  const float* weights = partial.weights + int64_t{row.first} * q_heads + head;
  const float* values = partial.values + (int64_t{row.first} * q_heads + head) * head_dim;
  // Many parts are under way at once: one after the other, each would wait for memory.
  constexpr int kAtOnce = 32 / kPairs;
  for (int first = 0; first < row.count; first += kAtOnce) {
    float2 parts[kAtOnce][kPairs];
    float part_weights[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t at = first + i;
      const bool inside = at < row.count;
      part_weights[i] = inside ? weights[at * q_heads] : 0;
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const int d = 64 * j + 2 * lane;
        parts[i][j] = make_float2(0, 0);
        if (inside && d < head_dim) {
          parts[i][j] = *reinterpret_cast<const float2*>(values + at * q_heads * head_dim + d);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < row.count) sum.Add(parts[i], part_weights[i]);
    }
  }
  sum.Write(out + row.row * out_stride + int64_t{head} * head_dim, head_dim, lane);
}

template <int kPairs>
cudaError_t Launch(const MergeWork& work, const AttentionCall& call) {
  const int q_heads = call.shape.q_heads;
  const dim3 block(32, std::min(q_heads, 4));
  const dim3 grid(work.rows, (q_heads + block.y - 1) / block.y);
  auto* out = reinterpret_cast<__nv_bfloat16*>(call.out.data);
  if (call.overlapped) {
    return LaunchOverlapped(MergeRows<kPairs>,
                            grid,
                            block,
                            0,
                            call.stream,
                            work.list,
                            work.partial,
                            q_heads,
                            call.shape.head_dim,
                            out,
                            call.out.stride);
  }
  MergeRows<kPairs><<<grid, block, 0, call.stream>>>(
      work.list, work.partial, q_heads, call.shape.head_dim, out, call.out.stride);
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
