#include "kernels/cuda/experts/experts_kernels.h"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/primitives/warp_reduce.cuh"

// Routing: chooses the experts of each row, groups rows by expert, and adds up the experts'
// results.
namespace baton::cuda {
namespace {

constexpr int kChoiceWarps = 4;
constexpr int kLaneScores = kMaxExperts / 32;
constexpr int kGroupThreads = 1024;
constexpr int kCombineThreads = 128;
constexpr uint32_t kAll = 0xffffffffu;

__device__ __forceinline__ uint64_t LargestOverWarp(uint64_t x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const uint64_t other = __shfl_xor_sync(kAll, x, offset);
    x = other > x ? other : x;
  }
  return x;
}

// One warp for each row: softmax over all scores, then the experts with the highest probabilities.
// Of equal ones, the lower index is chosen.
__global__ void __launch_bounds__(32 * kChoiceWarps)
    ChooseExperts(int32_t rows, const PreparedExperts experts, const ExpertScratch scratch) {
  WaitForPredecessor();
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const auto row = static_cast<int32_t>(blockIdx.x * kChoiceWarps + threadIdx.x / 32);
  if (row >= rows) return;
  const float* scores = scratch.scores + int64_t{row} * experts.experts;
  float p[kLaneScores];  // of experts lane, lane + 32, …
  float highest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kLaneScores; ++i) {
    const int32_t expert = lane + 32 * i;
    p[i] = expert < experts.experts ? scores[expert] : -INFINITY;
    highest = fmaxf(highest, p[i]);
  }
  highest = LargestOverWarp(highest);
  if (highest == -INFINITY) highest = 0;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kLaneScores; ++i) sum += p[i] = expf(p[i] - highest);
  sum = SumOverWarp(sum);
  // Probabilities are not negative, so that their bits have the same order. The key of an expert
  // that was already chosen, or does not exist, is 0.
  uint64_t keys[kLaneScores];
#pragma unroll
  for (int i = 0; i < kLaneScores; ++i) {
    const int32_t expert = lane + 32 * i;
    const uint32_t value = isnan(p[i]) ? 0 : __float_as_uint(p[i]);
    keys[i] = expert < experts.experts ? uint64_t{value + 1} << 32 | (kAll - expert) : 0;
  }
  float chosen = 0;
  float weight = 0;        // of this lane's pair
  int32_t expert_of = -1;  // expert of this lane's pair
  for (int32_t k = 0; k < experts.per_token; ++k) {
    uint64_t best = 0;
#pragma unroll
    for (int i = 0; i < kLaneScores; ++i) best = keys[i] > best ? keys[i] : best;
    best = LargestOverWarp(best);
#pragma unroll
    for (int i = 0; i < kLaneScores; ++i) keys[i] = keys[i] == best ? 0 : keys[i];
    const float value = __uint_as_float(static_cast<uint32_t>(best >> 32) - 1);
    chosen += value;
    if (lane == k) {
      weight = value;
      expert_of = static_cast<int32_t>(kAll - static_cast<uint32_t>(best));
    }
  }
  int32_t rank = 0;
  for (int32_t k = 0; k < experts.per_token; ++k) {
    rank += __shfl_sync(kAll, expert_of, k) < expert_of ? 1 : 0;
  }
  if (lane >= experts.per_token) return;
  const int64_t pair = int64_t{row} * experts.per_token + rank;
  scratch.pair_experts[pair] = expert_of;
  scratch.pair_weights[pair] = weight / (experts.normalize ? chosen : sum);
}

// One thread block: counts each expert's pairs, then assigns to each pair one of its expert's
// slots. The order of an expert's slots varies between runs, but no row's bits depend on it.
__global__ void __launch_bounds__(kGroupThreads) GroupPairs(int32_t pairs,
                                                            int32_t tile_rows,
                                                            const PreparedExperts experts,
                                                            const ExpertScratch scratch) {
  __shared__ int32_t counts[kMaxExperts];
  __shared__ int32_t next[kMaxExperts];   // an expert's first slot, then its next free one
  __shared__ int32_t tiles[kMaxExperts];  // an expert's first tile
  WaitForPredecessor();
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (thread < experts.experts) counts[thread] = 0;
  __syncthreads();
  const auto held = [&](int32_t expert) { return expert >= experts.first && expert < experts.end; };
  for (int32_t i = thread; i < pairs; i += kGroupThreads) {
    const int32_t expert = scratch.pair_experts[i];
    if (held(expert)) atomicAdd(&counts[expert], 1);
  }
  __syncthreads();
  if (thread < 32) {
    // Prefix sums: each lane adds up some neighbouring experts, then the lanes' sums are scanned.
    const int32_t each = CeilDiv(experts.experts, 32);
    const int32_t first = thread * each;
    const int32_t last = min(first + each, experts.experts);
    int32_t slot_sum = 0;
    int32_t tile_sum = 0;
    for (int32_t e = first; e < last; ++e) {
      slot_sum += counts[e];
      tile_sum += CeilDiv(counts[e], tile_rows);
    }
    int32_t slot = slot_sum;
    int32_t tile = tile_sum;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int32_t slots_below = __shfl_up_sync(kAll, slot, offset);
      const int32_t tiles_below = __shfl_up_sync(kAll, tile, offset);
      if (thread >= offset) {
        slot += slots_below;
        tile += tiles_below;
      }
    }
    if (thread == 31) *scratch.tile_count = tile;
    slot -= slot_sum;
    tile -= tile_sum;
    for (int32_t e = first; e < last; ++e) {
      next[e] = slot;
      tiles[e] = tile;
      slot += counts[e];
      tile += CeilDiv(counts[e], tile_rows);
    }
  }
  __syncthreads();
  if (thread < experts.experts) {
    for (int32_t done = 0; done < counts[thread]; done += tile_rows) {
      scratch.tiles[tiles[thread] + done / tile_rows] = {
          thread, next[thread] + done, min(tile_rows, counts[thread] - done)};
    }
  }
  __syncthreads();
  for (int32_t i = thread; i < pairs; i += kGroupThreads) {
    const int32_t expert = scratch.pair_experts[i];
    if (!held(expert)) {
      scratch.pair_slots[i] = -1;
      continue;
    }
    const int32_t slot = atomicAdd(&next[expert], 1);
    scratch.pair_slots[i] = slot;
    scratch.slot_rows[slot] = i / experts.per_token;
  }
}

// Adds up the weighted results of each row's experts. One thread block for each row.
__global__ void __launch_bounds__(kCombineThreads) CombineResults(const PreparedExperts experts,
                                                                  const ExpertScratch scratch,
                                                                  __nv_bfloat16* out,
                                                                  int64_t stride) {
  WaitForPredecessor();
  const int64_t row = blockIdx.x;
  const int64_t first_pair = row * experts.per_token;
  for (auto col = static_cast<int32_t>(8 * threadIdx.x); col < experts.hidden;
       col += 8 * kCombineThreads) {
    float sum[8] = {};
    for (int64_t pair = first_pair; pair < first_pair + experts.per_token; ++pair) {
      const float weight = scratch.pair_weights[pair];
      const int64_t slot = scratch.pair_slots[pair];
      if (slot < 0) continue;
      float result[8];
      Unpack(Load8(scratch.results + slot * experts.hidden + col), result);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[i] += weight * result[i];
    }
    Store8(out + row * stride + col, Pack(sum));
  }
}

}  // namespace

cudaError_t LaunchChoice(int64_t rows,
                         const PreparedExperts& experts,
                         const ExpertScratch& scratch,
                         cudaStream_t stream) {
  const dim3 grid(CeilDiv(rows, kChoiceWarps));
  return LaunchOverlapped(ChooseExperts,
                          grid,
                          dim3(32 * kChoiceWarps),
                          0,
                          stream,
                          static_cast<int32_t>(rows),
                          experts,
                          scratch);
}

cudaError_t LaunchGrouping(int64_t rows,
                           const PreparedExperts& experts,
                           const ExpertScratch& scratch,
                           cudaStream_t stream) {
  return LaunchOverlapped(GroupPairs,
                          dim3(1),
                          dim3(kGroupThreads),
                          0,
                          stream,
                          static_cast<int32_t>(rows * experts.per_token),
                          TileRows(experts, rows),
                          experts,
                          scratch);
}

cudaError_t LaunchCombine(const PreparedExperts& experts,
                          const ExpertScratch& scratch,
                          const Tensor& out,
                          cudaStream_t stream) {
  return LaunchOverlapped(CombineResults,
                          dim3(static_cast<uint32_t>(out.rows)),
                          dim3(kCombineThreads),
                          0,
                          stream,
                          experts,
                          scratch,
                          reinterpret_cast<__nv_bfloat16*>(out.data),
                          out.stride);
}

}  // namespace baton::cuda
