#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/sampling/sampling_device.cuh"
#include "kernels/cuda/sampling/sampling_kernels.h"

// Thread block (row, split) processes one range of a row's tokens. The block that finishes last
// combines the results of all ranges.
namespace baton::cuda {
namespace {

constexpr int kThreads = 256;

// The value in SamplingPlan::undo of an entry that changed no logit. It is a NaN, and a token whose
// logit is NaN is never chosen.
constexpr uint32_t kNoUndo = 0x7fffbeef;

// The lists of a row, and the logits as they were before the lists changed them.
struct RowLists {
  const LogitBias* bias;
  const TokenId* banned;
  const TokenId* output;
  const TokenId* prompt;
  float* undo;  // null: not needed

  __device__ RowLists(const SamplingPlan& plan, const SamplingRowArgs& args)
      : bias(reinterpret_cast<const LogitBias*>(plan.lists + args.bias_at)),
        banned(reinterpret_cast<const TokenId*>(plan.lists + args.banned_at)),
        output(reinterpret_cast<const TokenId*>(plan.lists + args.output_at)),
        prompt(reinterpret_cast<const TokenId*>(plan.lists + args.prompt_at)),
        undo(args.params.top_logprobs >= 0 ? plan.undo + args.undo_at : nullptr) {}

  // Token `i` of the concatenation of bias, banned, output and prompt.
  __device__ TokenId Entry(const SamplingRowArgs& args, int32_t i) const {
    if (i < args.bias_count) return bias[i].token;
    i -= args.bias_count;
    if (i < args.banned_count) return banned[i];
    i -= args.banned_count;
    return i < args.output_count ? output[i] : prompt[i - args.output_count];
  }
};

// Adds the biases and sets the logits of banned tokens to −∞, for the tokens in [begin, end).
__device__ void ApplyBias(
    const RowLists& lists, const SamplingRowArgs& args, float* row, int32_t begin, int32_t end) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t i = thread; i < args.bias_count; i += kThreads) {
    const TokenId token = lists.bias[i].token;
    if (token < begin || token >= end || (i > 0 && lists.bias[i - 1].token == token)) continue;
    float logit = row[token];
    if (lists.undo != nullptr) lists.undo[i] = logit;
    for (int32_t k = i; k < args.bias_count && lists.bias[k].token == token; ++k) {
      logit += lists.bias[k].bias;
    }
    row[token] = logit;
  }
  __syncthreads();
  if (args.banned_count == 0) return;
  for (int32_t i = thread; i < args.banned_count && lists.undo != nullptr; i += kThreads) {
    const TokenId token = lists.banned[i];
    if (token >= begin && token < end) lists.undo[args.bias_count + i] = row[token];
  }
  __syncthreads();
  for (int32_t i = thread; i < args.banned_count; i += kThreads) {
    const TokenId token = lists.banned[i];
    if (token >= begin && token < end) row[token] = -INFINITY;
  }
  __syncthreads();
}

// Sets the logits of tokens that the row's mask does not allow to −∞, for the tokens in [begin,
// end). Writes no `undo`, because such a token is never chosen.
__device__ void ApplyMask(const uint32_t* mask, float* row, int32_t begin, int32_t end) {
  for (int32_t i = begin + static_cast<int32_t>(threadIdx.x); i < end; i += kThreads) {
    if ((mask[i / 32] >> (i % 32) & 1u) == 0) row[i] = -INFINITY;
  }
  __syncthreads();
}

// Applies repetition, presence and frequency penalties to the tokens in [begin, end). `counts` is
// shared memory for end − begin counters.
__device__ void ApplyPenalties(const RowLists& lists,
                               const SamplingRowArgs& args,
                               float* row,
                               int32_t begin,
                               int32_t end,
                               uint32_t* counts) {
  constexpr uint32_t kInPrompt = 0x80000000u;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t total = args.output_count + args.prompt_count;
  if (total == 0) return;
  const int32_t first = args.bias_count + args.banned_count;
  for (int32_t i = thread; i < end - begin; i += kThreads) counts[i] = 0;
  __syncthreads();
  for (int32_t i = thread; i < total; i += kThreads) {
    const TokenId token = lists.Entry(args, first + i);
    if (token < begin || token >= end) continue;
    if (i < args.output_count) {
      atomicAdd(&counts[token - begin], 1u);
    } else {
      atomicOr(&counts[token - begin], kInPrompt);
    }
  }
  __syncthreads();
  // The thread that takes a token's count changes the token's logit, so that it changes once.
  for (int32_t i = thread; i < total; i += kThreads) {
    const TokenId token = lists.Entry(args, first + i);
    if (token < begin || token >= end) continue;
    const uint32_t taken = atomicExch(&counts[token - begin], 0u);
    float logit = row[token];
    if (lists.undo != nullptr) {
      lists.undo[first + i] = taken == 0 ? __uint_as_float(kNoUndo) : logit;
    }
    if (taken == 0) continue;
    if (args.params.repetition_penalty != 1.0f) {
      logit = logit > 0 ? logit / args.params.repetition_penalty
                        : logit * args.params.repetition_penalty;
    }
    const uint32_t count = taken & ~kInPrompt;
    if (count > 0) {
      // Rounds the product and the sum separately, as the CPU backend does.
      const float frequency = __fmul_rn(args.params.frequency_penalty, static_cast<float>(count));
      logit = __fsub_rn(logit, __fadd_rn(args.params.presence_penalty, frequency));
    }
    row[token] = logit;
  }
  __syncthreads();
}

// Finds the highest logit of each row. Without `unedited`: applies the row's edits first (bias,
// banned tokens, mask, penalties), and writes plan.best and the greedy choice. With `unedited`:
// writes plan.unedited, for rows with logprobs.
template <bool kEdits>
__global__ void __launch_bounds__(kThreads)
    FindHighest(const SamplingPlan plan, float* logits, int64_t stride, bool unedited) {
  extern __shared__ uint32_t counts[];
  WaitForPredecessor();
  const uint32_t row = blockIdx.x;
  const SamplingRowArgs args = plan.args[row];
  if (args.kind == SamplingKind::kNone) {
    if (blockIdx.y == 0 && threadIdx.x == 0) {
      plan.tokens[row] = 0;
      plan.failed[row] = 0;
    }
    return;
  }
  if (unedited && args.params.top_logprobs < 0) return;
  float* values = logits + row * stride;
  const int32_t begin = static_cast<int32_t>(blockIdx.y) * plan.range;
  const int32_t end = min(begin + plan.range, plan.vocabulary);
  if (kEdits && args.edited()) {
    const RowLists lists(plan, args);
    ApplyBias(lists, args, values, begin, end);
    if (args.masked != 0) {
      ApplyMask(reinterpret_cast<const uint32_t*>(plan.lists + args.mask_at), values, begin, end);
    }
    ApplyPenalties(lists, args, values, begin, end, counts);
  }
  uint64_t best = 0;
  ForRange(values, begin, end, [&](int32_t token, float logit) {
    best = max(best, KeyOf(OrderedBits(logit), token));
  });
  best = BlockReduce(best, Highest());
  uint64_t* partials = plan.partials + row * kMaxSplits;
  if (threadIdx.x == 0) partials[blockIdx.y] = best;
  if (!IsLastBlock(&plan.finished[row], gridDim.y)) return;
  best = threadIdx.x < gridDim.y ? __ldcg(&partials[threadIdx.x]) : 0;
  best = BlockReduce(best, Highest());
  if (threadIdx.x != 0) return;
  if (unedited) {
    plan.unedited[row] = best;
    return;
  }
  plan.best[row] = best;
  plan.tokens[row] = TokenOf(best);
  plan.failed[row] = LogitOf(best) == -INFINITY ? 1 : 0;
}

// Draws a token: sums the weights in the order of token ids, and chooses the token at which the sum
// exceeds the row's drawn value. Finds the range with that token first, then the thread's part of
// the range. `partials` are the sums of the ranges.
__device__ void UnsortedDraw(const SamplingPlan& plan,
                             const float* values,
                             uint64_t (&partials)[kMaxSplits],
                             float highest,
                             const SamplingRowArgs& args,
                             int32_t* token) {
  __shared__ uint64_t of_thread[kThreads];
  __shared__ uint64_t wanted;
  __shared__ int32_t split;
  if (threadIdx.x == 0) {
    uint64_t sum = 0;
    for (int32_t i = 0; i < plan.splits; ++i) sum += partials[i];
    const auto drawn = static_cast<uint64_t>(args.draw * static_cast<double>(sum));
    uint64_t left = sum == 0 ? 0 : min(drawn, sum - 1);
    int32_t i = 0;
    while (i + 1 < plan.splits && left >= partials[i]) left -= partials[i++];
    wanted = left;
    split = i;
  }
  __syncthreads();
  const int32_t begin = split * plan.range;
  const int32_t end = min(begin + plan.range, plan.vocabulary);
  const int32_t each = CeilDiv(end - begin, kThreads);
  const int32_t first = begin + static_cast<int32_t>(threadIdx.x) * each;
  const int32_t last = min(first + each, end);
  const auto weight = [&](int32_t i) {
    const float w = Weight(values[i], highest, args.scale);
    return w >= args.params.min_p ? Fixed(w) : 0;
  };
  uint64_t mine = 0;
  for (int32_t i = first; i < last; ++i) mine += weight(i);
  of_thread[threadIdx.x] = mine;
  __syncthreads();
  uint64_t before = 0;
  for (uint32_t i = 0; i < threadIdx.x; ++i) before += of_thread[i];
  if (wanted < before || wanted >= before + mine) return;
  for (int32_t i = first; i < last; ++i) {
    before += weight(i);
    if (before > wanted) {
      *token = i;
      return;
    }
  }
}

// Sums the weights of each row that draws in the order of token ids (kUnsorted), and draws. With
// `logprobs`: sums the weights of each row with logprobs, and writes plan.log_sums.
__global__ void __launch_bounds__(kThreads)
    SumWeights(const SamplingPlan plan, const float* logits, int64_t stride, bool logprobs) {
  __shared__ uint64_t sums[kMaxSplits];
  WaitForPredecessor();
  const uint32_t row = blockIdx.x;
  const SamplingRowArgs args = plan.args[row];
  if (args.kind == SamplingKind::kNone) return;
  if (logprobs ? args.params.top_logprobs < 0 : args.kind != SamplingKind::kUnsorted) return;
  const float highest = LogitOf(logprobs ? plan.unedited[row] : plan.best[row]);
  // No draw: if the highest logit is +∞, its token is already chosen; if it is −∞, none can be.
  if (!logprobs && !(fabsf(highest) <= kLargestLogit)) return;
  const float scale = logprobs ? 1.0f : args.scale;
  const float least = logprobs ? 0.0f : args.params.min_p;
  const float* values = logits + row * stride;
  const int32_t begin = static_cast<int32_t>(blockIdx.y) * plan.range;
  const int32_t end = min(begin + plan.range, plan.vocabulary);
  uint64_t sum = 0;
  ForRange(values, begin, end, [&](int32_t, float logit) {
    const float w = Weight(logit, highest, scale);
    if (w >= least) sum += Fixed(w);
  });
  sum = BlockReduce(sum, Add());
  uint64_t* partials = plan.partials + row * kMaxSplits;
  if (threadIdx.x == 0) partials[blockIdx.y] = sum;
  if (!IsLastBlock(&plan.finished[row], gridDim.y)) return;
  if (threadIdx.x < gridDim.y) sums[threadIdx.x] = __ldcg(&partials[threadIdx.x]);
  __syncthreads();
  if (!logprobs) {
    UnsortedDraw(plan, values, sums, highest, args, &plan.tokens[row]);
    return;
  }
  if (threadIdx.x != 0) return;
  uint64_t total = 0;
  for (int32_t i = 0; i < plan.splits; ++i) total += sums[i];
  plan.log_sums[row] = log(static_cast<double>(total) / kFixedOne);
}

// Computes the logprob of each chosen token from its logit before edits. The first list entry that
// changed the logit has that value in SamplingPlan::undo.
__global__ void __launch_bounds__(kThreads)
    FindChosenLogprob(const SamplingPlan plan, const float* logits, int64_t stride) {
  __shared__ int32_t first;
  WaitForPredecessor();
  const uint32_t row = blockIdx.x;
  const SamplingRowArgs args = plan.args[row];
  if (args.kind == SamplingKind::kNone || args.params.top_logprobs < 0) return;
  const int32_t token = plan.tokens[row];
  const RowLists lists(plan, args);
  const int32_t count = args.bias_count + args.banned_count + args.output_count + args.prompt_count;
  if (threadIdx.x == 0) first = count;
  __syncthreads();
  for (auto i = static_cast<int32_t>(threadIdx.x); i < count; i += kThreads) {
    if (lists.Entry(args, i) != token) continue;
    const bool changed =
        i < args.bias_count + args.banned_count || __float_as_uint(lists.undo[i]) != kNoUndo;
    if (changed) atomicMin(&first, i);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  const float logit = first < count ? lists.undo[first] : logits[row * stride + token];
  plan.logprobs[row] = static_cast<float>(static_cast<double>(logit) - LogitOf(plan.unedited[row]) -
                                          plan.log_sums[row]);
}

}  // namespace

cudaError_t LaunchChosenLogprobs(const SamplingPlan& plan,
                                 const float* logits,
                                 int64_t stride,
                                 cudaStream_t stream) {
  return LaunchOverlapped(
      FindChosenLogprob, dim3(plan.rows), dim3(kThreads), 0, stream, plan, logits, stride);
}

cudaError_t LaunchSampling(const SamplingPlan& plan, const Tensor& logits, cudaStream_t stream) {
  auto* values = reinterpret_cast<float*>(logits.data);
  const int64_t stride = logits.stride;
  const dim3 grid(plan.rows, plan.splits);
  const dim3 block(kThreads);
  const auto has = [&](SamplingWork work) { return (plan.work & work) != 0; };
  cudaError_t error = cudaSuccess;
  if (has(kLogprobWork)) {
    error =
        LaunchOverlapped(FindHighest<false>, grid, block, 0, stream, plan, values, stride, true);
    if (error != cudaSuccess) return error;
    error = LaunchOverlapped(SumWeights, grid, block, 0, stream, plan, values, stride, true);
    if (error != cudaSuccess) return error;
    if (plan.top > 0) error = LaunchTopLogprobs(plan, values, stride, stream);
    if (error != cudaSuccess) return error;
  }
  if (has(kEditWork)) {
    const size_t counts = static_cast<size_t>(plan.range) * sizeof(uint32_t);
    error = LaunchOverlapped(
        FindHighest<true>, grid, block, counts, stream, plan, values, stride, false);
  } else {
    error =
        LaunchOverlapped(FindHighest<false>, grid, block, 0, stream, plan, values, stride, false);
  }
  if (error == cudaSuccess && has(kUnsortedWork)) {
    error = LaunchOverlapped(SumWeights, grid, block, 0, stream, plan, values, stride, false);
  }
  if (error == cudaSuccess && has(kSortedWork)) {
    error = LaunchSortedDraw(plan, values, stride, stream);
  }
  if (error == cudaSuccess && has(kLogprobWork)) {
    error = LaunchChosenLogprobs(plan, values, stride, stream);
  }
  return error;
}

}  // namespace baton::cuda
