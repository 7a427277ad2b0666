#include <type_traits>

#include "kernels/cuda/experts/experts_kernels.h"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/primitives/warp_reduce.cuh"
#include "kernels/cuda/sums/expert_results.cuh"

// Routing: chooses the experts of each row, groups rows by expert, and adds up the experts'
// results.
namespace baton::cuda {
namespace {

constexpr int kScoreWarps = 4;
constexpr int kChoiceWarps = 4;
constexpr int kGroupThreads = 1024;
constexpr int kCombineThreads = 256;
constexpr uint32_t kAll = 0xffffffffu;

// The scores of few rows: one warp for each expert. The warp loads the first part of its row of the
// router before it waits for the previous kernel.
__global__ void __launch_bounds__(32 * kScoreWarps) ScoreFewRows(const __nv_bfloat16* x,
                                                                 int64_t stride,
                                                                 int32_t rows,
                                                                 const PreparedExperts experts,
                                                                 const ExpertScratch scratch) {
  constexpr int32_t kEarly = 8;  // vectors of a lane
  ReleaseSuccessor();
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const auto expert = static_cast<int32_t>(blockIdx.x * kScoreWarps + threadIdx.x / 32);
  const __nv_bfloat16* const router =
      experts.router + int64_t{min(expert, experts.experts - 1)} * experts.hidden;
  Packed8 early[kEarly];
#pragma unroll
  for (int32_t i = 0; i < kEarly; ++i) {
    const int32_t col = 8 * (lane + 32 * i);
    if (col < experts.hidden) early[i] = Load8(router + col);
  }
  WaitForPredecessor();
  if (expert >= experts.experts) return;
  if (lane == 0) scratch.counts[expert * kCountStride] = 0;
  if (expert == 0 && lane < 2) scratch.next_items[lane] = 0;
  for (int32_t row = 0; row < rows; ++row) {
    float sum = 0;
    const auto add = [&](const Packed8& weights, int32_t col) {
      float w[8];
      float v[8];
      Unpack(weights, w);
      Unpack(Load8(x + row * stride + col), v);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum += w[i] * v[i];
    };
#pragma unroll
    for (int32_t i = 0; i < kEarly; ++i) {
      if (const int32_t col = 8 * (lane + 32 * i); col < experts.hidden) add(early[i], col);
    }
    for (int32_t col = 8 * (lane + 32 * kEarly); col < experts.hidden; col += 8 * 32) {
      add(Load8(router + col), col);
    }
    sum = SumOverWarp(sum);
    if (lane == 0) scratch.scores[int64_t{row} * experts.experts + expert] = sum;
  }
}

__device__ __forceinline__ bool IsHeld(const PreparedExperts& experts, int32_t expert) {
  return expert >= experts.first && expert < experts.end;
}

// The scores of a row's experts, times a factor. A warp holds them: value i of a lane belongs to
// expert lane + 32 i.
template <int kLaneScores>
struct RowScores {
  float values[kLaneScores];
  float factor = 1;

  // From the logits of the router.
  __device__ __forceinline__ RowScores(const float* logits, const PreparedExperts& experts) {
    const PreparedRouting& routing = experts.routing;
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    float highest = -INFINITY;
#pragma unroll
    for (int i = 0; i < kLaneScores; ++i) {
      const int32_t expert = lane + 32 * i;
      values[i] = expert < experts.experts ? logits[expert] : -INFINITY;
      if (routing.bias != nullptr && expert < experts.experts) values[i] += routing.bias[expert];
      highest = fmaxf(highest, values[i]);
    }
    if (routing.score == RouterScore::kSigmoidOfLogits) return;
    if (routing.score == RouterScore::kSigmoid) {
#pragma unroll
      for (float& value : values) value = 1.0f / (1.0f + expf(-value));
      return;
    }
    highest = LargestOverWarp(highest);
    if (highest == -INFINITY) highest = 0;
    float sum = 0;
#pragma unroll
    for (float& value : values) sum += value = expf(value - highest);
    factor = SumOverWarp(sum);
  }

  // The score of an expert, which is the same in all lanes.
  __device__ __forceinline__ float Of(int32_t expert) const {
    float mine = 0;
#pragma unroll
    for (int i = 0; i < kLaneScores; ++i) {
      if (i == expert / 32) mine = values[i];
    }
    return __shfl_sync(kAll, mine, expert % 32);
  }
};

// A key of a number: a larger number has a larger key. That of NaN is the smallest one, 1; 0 stands
// for no number.
__device__ __forceinline__ uint32_t KeyOf(float number) {
  const uint32_t bits = __float_as_uint(number);
  const uint32_t ordered = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return isnan(number) ? 1 : max(ordered, 1u);
}

// Runs on one warp: the groups of experts that are best by `choices`, as bits. A lane has the
// choices of experts lane, lane + 32, …
template <int kLaneScores>
__device__ __forceinline__ uint32_t BestGroups(const PreparedExperts& experts,
                                               const float (&choices)[kLaneScores]) {
  const PreparedRouting& routing = experts.routing;
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const int32_t size = experts.experts / routing.groups;
  float score = -INFINITY;  // of group `lane`
  for (int32_t group = 0; group < routing.groups; ++group) {
    float best = -INFINITY;
    float second = -INFINITY;
#pragma unroll
    for (int i = 0; i < kLaneScores; ++i) {
      const int32_t expert = lane + 32 * i;
      if (expert >= experts.experts || expert / size != group) continue;
      second = fmaxf(second, fminf(best, choices[i]));
      best = fmaxf(best, choices[i]);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      const float other = __shfl_xor_sync(kAll, best, offset);
      const float other_second = __shfl_xor_sync(kAll, second, offset);
      second = fmaxf(fmaxf(second, other_second), fminf(best, other));
      best = fmaxf(best, other);
    }
    const bool two = routing.group_score == GroupScore::kBestTwo && size > 1;
    if (lane == group) score = two ? best + second : best;
  }
  uint32_t key = lane < routing.groups ? KeyOf(score) : 0;
  uint32_t groups = 0;
  for (int32_t k = 0; k < routing.groups_per_token; ++k) {
    const uint32_t largest = __reduce_max_sync(kAll, key);
    const int32_t group = __ffs(static_cast<int>(__ballot_sync(kAll, key == largest))) - 1;
    groups |= 1u << group;
    if (lane == group) key = 0;
  }
  return groups;
}

// The keys by which a row chooses experts. The key of one that does not exist is 0.
template <int kLaneScores>
__device__ __forceinline__ void KeysOf(const RowScores<kLaneScores>& scores,
                                       const PreparedExperts& experts,
                                       uint32_t (&keys)[kLaneScores]) {
  const PreparedRouting& routing = experts.routing;
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  float choices[kLaneScores];
#pragma unroll
  for (int i = 0; i < kLaneScores; ++i) {
    const int32_t expert = lane + 32 * i;
    choices[i] = scores.values[i];
    if (routing.selection_bias != nullptr && expert < experts.experts) {
      choices[i] = choices[i] / scores.factor + routing.selection_bias[expert];
    }
  }
  const uint32_t groups = routing.groups > 1 ? BestGroups(experts, choices) : 1;
  const int32_t size = experts.experts / routing.groups;
#pragma unroll
  for (int i = 0; i < kLaneScores; ++i) {
    const int32_t expert = lane + 32 * i;
    keys[i] = 0;
    if (expert >= experts.experts) continue;
    keys[i] = (groups >> expert / size & 1) != 0 ? KeyOf(choices[i]) : KeyOf(-INFINITY);
  }
}

// Runs on one warp: chooses the experts of a row. Of equally good ones, the lower index is chosen.
// Counts the pairs of held expert e in counts[e · kStride]; the order of an expert's pairs varies
// between runs, but no row's bits depend on it. kByLogits: PreparedRouting::chooses_by_logits.
template <int kLaneScores, int kStride, bool kByLogits>
__device__ __forceinline__ void ChooseForRow(int32_t row,
                                             const PreparedExperts& experts,
                                             const ExpertScratch& scratch,
                                             int32_t* counts) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const RowScores<kLaneScores> scores(scratch.scores + int64_t{row} * experts.experts, experts);
  uint32_t keys[kLaneScores];
  if constexpr (kByLogits) {
    // Scores are not negative, so that their bits have the same order.
#pragma unroll
    for (int i = 0; i < kLaneScores; ++i) {
      const float score = scores.values[i];
      const uint32_t value = isnan(score) ? 0 : __float_as_uint(score);
      keys[i] = lane + 32 * i < experts.experts ? value + 1 : 0;
    }
  } else {
    KeysOf(scores, experts, keys);
  }
  // A sum of sigmoids may be 0; DeepSeek-V3 adds this.
  float chosen = experts.routing.score == RouterScore::kSigmoid ? 1e-20f : 0.0f;
  float weight = 0;        // of this lane's pair
  int32_t expert_of = -1;  // expert of this lane's pair
  for (int32_t k = 0; k < experts.per_token; ++k) {
    uint32_t best = 0;
#pragma unroll
    for (int i = 0; i < kLaneScores; ++i) best = max(best, keys[i]);
    best = __reduce_max_sync(kAll, best);
    auto expert = static_cast<uint32_t>(kMaxExperts);
#pragma unroll
    for (int i = kLaneScores - 1; i >= 0; --i) {
      if (keys[i] == best) expert = static_cast<uint32_t>(lane + 32 * i);
    }
    expert = __reduce_min_sync(kAll, expert);
#pragma unroll
    for (int i = 0; i < kLaneScores; ++i) {
      if (expert == static_cast<uint32_t>(lane + 32 * i)) keys[i] = 0;
    }
    float value = kByLogits ? __uint_as_float(best - 1) : scores.Of(static_cast<int32_t>(expert));
    if (experts.routing.score == RouterScore::kSigmoidOfLogits) {
      value = 1.0f / (1.0f + expf(-value));
    }
    chosen += value;
    if (lane == k) {
      weight = value;
      expert_of = static_cast<int32_t>(expert);
    }
  }
  int32_t place = 0;
  for (int32_t k = 0; k < experts.per_token; ++k) {
    place += __shfl_sync(kAll, expert_of, k) < expert_of ? 1 : 0;
  }
  if (lane >= experts.per_token) return;
  const int64_t pair = int64_t{row} * experts.per_token + place;
  scratch.pair_experts[pair] = expert_of;
  if (IsHeld(experts, expert_of)) {
    scratch.pair_ranks[pair] = atomicAdd(counts + expert_of * kStride, 1);
  }
  const PreparedRouting& routing = experts.routing;
  const float sum =
      experts.normalize ? fmaxf(chosen, routing.least_sum * scores.factor) : scores.factor;
  scratch.pair_weights[pair] = weight / sum * routing.scale;
}

// Runs on one warp: sets `first_slots` of each expert from `counts`. With `writes_tiles`, it also
// writes the tiles and the numbers of tiles and slots.
__device__ __forceinline__ void FindSlots(int32_t tile_rows,
                                          bool writes_tiles,
                                          const PreparedExperts& experts,
                                          const ExpertScratch& scratch,
                                          const int32_t* counts,
                                          int32_t* first_slots) {
  // Prefix sums: each lane adds up some neighbouring experts, then the lanes' sums are scanned.
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const int32_t each = CeilDiv(experts.experts, 32);
  const int32_t first = lane * each;
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
    if (lane >= offset) {
      slot += slots_below;
      tile += tiles_below;
    }
  }
  if (writes_tiles && lane == 31) {
    *scratch.tile_count = tile;
    *scratch.slot_count = slot;
  }
  slot -= slot_sum;
  tile -= tile_sum;
  for (int32_t e = first; e < last; ++e) {
    first_slots[e] = slot;
    for (int32_t done = 0; writes_tiles && done < counts[e]; done += tile_rows) {
      scratch.tiles[tile++] = {e, slot + done, min(tile_rows, counts[e] - done)};
    }
    slot += counts[e];
  }
}

__device__ __forceinline__ void AssignSlot(int32_t pair,
                                           const PreparedExperts& experts,
                                           const ExpertScratch& scratch,
                                           const int32_t* first_slots) {
  const int32_t expert = scratch.pair_experts[pair];
  if (!IsHeld(experts, expert)) {
    scratch.pair_slots[pair] = -1;
    return;
  }
  const int32_t slot = first_slots[expert] + scratch.pair_ranks[pair];
  scratch.pair_slots[pair] = slot;
  scratch.slot_rows[slot] = pair / experts.per_token;
  if (scratch.slot_weights == nullptr) return;
  // The weight multiplies the products with the input in place of the result.
  scratch.slot_weights[slot] = scratch.pair_weights[pair];
  scratch.pair_weights[pair] = 1.0f;
}

// One warp for each row.
template <int kLaneScores, bool kByLogits>
__global__ void __launch_bounds__(32 * kChoiceWarps)
    ChooseExperts(int32_t rows, const PreparedExperts experts, const ExpertScratch scratch) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const auto row = static_cast<int32_t>(blockIdx.x * kChoiceWarps + threadIdx.x / 32);
  if (row < rows) {
    ChooseForRow<kLaneScores, kCountStride, kByLogits>(row, experts, scratch, scratch.counts);
  }
}

// One thread for each pair. Every thread block computes the experts' first slots itself.
__global__ void __launch_bounds__(kGroupThreads) GroupPairs(int32_t pairs,
                                                            int32_t tile_rows,
                                                            const PreparedExperts experts,
                                                            const ExpertScratch scratch) {
  __shared__ int32_t counts[kMaxExperts];
  __shared__ int32_t first_slots[kMaxExperts];
  ReleaseSuccessor();
  WaitForPredecessor();
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (thread < experts.experts) counts[thread] = scratch.counts[thread * kCountStride];
  __syncthreads();
  if (thread < 32) {
    FindSlots(tile_rows, blockIdx.x == 0, experts, scratch, counts, first_slots);
  }
  __syncthreads();
  const int32_t pair = static_cast<int32_t>(blockIdx.x) * kGroupThreads + thread;
  if (pair < pairs) AssignSlot(pair, experts, scratch, first_slots);
}

// One thread block that does the work of both kernels above, for few rows.
template <int kLaneScores, bool kByLogits>
__global__ void __launch_bounds__(kGroupThreads) ChooseAndGroup(int32_t rows,
                                                                int32_t tile_rows,
                                                                const PreparedExperts experts,
                                                                const ExpertScratch scratch) {
  __shared__ int32_t counts[kMaxExperts];
  __shared__ int32_t first_slots[kMaxExperts];
  ReleaseSuccessor();
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (thread < experts.experts) counts[thread] = 0;
  __syncthreads();
  WaitForPredecessor();
  for (int32_t row = thread / 32; row < rows; row += kGroupThreads / 32) {
    ChooseForRow<kLaneScores, 1, kByLogits>(row, experts, scratch, counts);
  }
  __syncthreads();
  if (thread < 32) FindSlots(tile_rows, true, experts, scratch, counts, first_slots);
  __syncthreads();
  for (int32_t pair = thread; pair < rows * experts.per_token; pair += kGroupThreads) {
    AssignSlot(pair, experts, scratch, first_slots);
  }
}

// Adds up the weighted results of each row's held experts. One thread block for each row. T is
// bf16, or float32 for a rank's part of a sum.
template <class T>
__global__ void __launch_bounds__(kCombineThreads)
    CombineResults(const ExpertResults results, T* out, int64_t stride) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int64_t row = blockIdx.x;
  for (int64_t col = 8 * threadIdx.x; col < results.cols; col += 8 * kCombineThreads) {
    float sum[8];
    SumOfResults(results, row, col, sum);
    Write8(out + row * stride + col, sum);
  }
}

// Launches the instance of a kernel whose lanes have room for all scores of a row, and that chooses
// as `experts` say.
template <class Launch>
cudaError_t ForScores(const PreparedExperts& experts, const Launch& launch) {
  const auto choose = [&](auto by_logits) {
    if (experts.experts <= 128) return launch(std::integral_constant<int, 4>(), by_logits);
    return launch(std::integral_constant<int, kMaxExperts / 32>(), by_logits);
  };
  return experts.routing.chooses_by_logits() ? choose(std::true_type()) : choose(std::false_type());
}

cudaError_t LaunchChoice(int32_t rows,
                         const PreparedExperts& experts,
                         const ExpertScratch& scratch,
                         cudaStream_t stream) {
  return ForScores(experts, [&](auto scores, auto by_logits) {
    return LaunchOverlapped(ChooseExperts<scores(), by_logits()>,
                            dim3(CeilDiv(rows, kChoiceWarps)),
                            dim3(32 * kChoiceWarps),
                            0,
                            stream,
                            rows,
                            experts,
                            scratch);
  });
}

}  // namespace

cudaError_t LaunchFewScores(const Tensor& x,
                            const PreparedExperts& experts,
                            const ExpertScratch& scratch,
                            cudaStream_t stream) {
  return LaunchOverlapped(ScoreFewRows,
                          dim3(CeilDiv(experts.experts, kScoreWarps)),
                          dim3(32 * kScoreWarps),
                          0,
                          stream,
                          reinterpret_cast<const __nv_bfloat16*>(x.data),
                          x.stride,
                          static_cast<int32_t>(x.rows),
                          experts,
                          scratch);
}

cudaError_t LaunchRouting(int64_t row_count,
                          const PreparedExperts& experts,
                          const ExpertScratch& scratch,
                          cudaStream_t stream) {
  const auto rows = static_cast<int32_t>(row_count);
  const int32_t tile_rows = TileRows(experts, rows);
  if (rows <= kGroupThreads / 32) {
    return ForScores(experts, [&](auto scores, auto by_logits) {
      return LaunchOverlapped(ChooseAndGroup<scores(), by_logits()>,
                              dim3(1),
                              dim3(kGroupThreads),
                              0,
                              stream,
                              rows,
                              tile_rows,
                              experts,
                              scratch);
    });
  }
  const cudaError_t error = LaunchChoice(rows, experts, scratch, stream);
  if (error != cudaSuccess) return error;
  const int32_t pairs = rows * experts.per_token;
  return LaunchOverlapped(GroupPairs,
                          dim3(CeilDiv(pairs, kGroupThreads)),
                          dim3(kGroupThreads),
                          0,
                          stream,
                          pairs,
                          tile_rows,
                          experts,
                          scratch);
}

cudaError_t LaunchCombine(const ExpertResults& results, const Tensor& out, cudaStream_t stream) {
  const auto launch = [&]<class T>(T* to) {
    return LaunchOverlapped(CombineResults<T>,
                            dim3(static_cast<uint32_t>(out.rows)),
                            dim3(kCombineThreads),
                            0,
                            stream,
                            results,
                            to,
                            out.stride);
  };
  return out.dtype == DType::kF32 ? launch(reinterpret_cast<float*>(out.data))
                                  : launch(reinterpret_cast<__nv_bfloat16*>(out.data));
}

}  // namespace baton::cuda
