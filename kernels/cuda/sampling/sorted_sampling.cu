#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/sampling/radix_search.cuh"
#include "kernels/cuda/sampling/sampling_kernels.h"

// Kernels that need a row's candidates in order: draws with top-k or top-p, and the lists of
// logprobs. One thread block for each row.
namespace baton::cuda {
namespace {

// The weights of a row as candidates: all of the row, or those in `list`. A weight that rounds to 0
// in fixed point is not a candidate and is never drawn.
struct WeightCandidates {
  const float* row;
  int32_t vocabulary;
  float highest;
  float scale;
  const uint64_t* list = nullptr;  // null: all of the row
  uint32_t listed = 0;

  template <class F>
  __device__ void operator()(F f) const {
    if (list != nullptr) {
      for (uint32_t i = threadIdx.x; i < listed; i += kSearchThreads) f(list[i]);
      return;
    }
    ForRange(row, 0, vocabulary, [&](int32_t token, float logit) {
      const float weight = Weight(logit, highest, scale);
      if (Fixed(weight) > 0) f(KeyOf(WeightBits(weight), token));
    });
  }
};

// The logits of a row as candidates, except NaNs.
struct LogitCandidates {
  const float* row;
  int32_t vocabulary;

  template <class F>
  __device__ void operator()(F f) const {
    ForRange(row, 0, vocabulary, [&](int32_t token, float logit) {
      if (!isnan(logit)) f(KeyOf(OrderedBits(logit), token));
    });
  }
};

__device__ __forceinline__ uint64_t Ceil(double x) {
  return static_cast<uint64_t>(ceil(x));
}

// The goal of a walk that keeps candidates until their mass reaches `share` · `sum`.
__device__ __forceinline__ WalkGoal TopP(double share, uint64_t sum) {
  return {true, max(Ceil(share * static_cast<double>(sum)), uint64_t{1}) - 1};
}

// A key below which top-k or top-p keeps no candidate; 0 when none was found. For top-p: the
// candidates below this key weigh less than (1 − p) / 2 together, and all weights of a row sum to
// at least 1. The other candidates therefore reach the share p by themselves.
__device__ uint64_t LeastKept(SearchMemory& m,
                              const SamplingRowArgs& args,
                              const WeightCandidates& all) {
  if (args.params.top_k > 0 && args.params.top_k < all.vocabulary) {
    return LowerBound(m, all, static_cast<uint32_t>(args.params.top_k));
  }
  if (args.params.top_p >= 1) return 0;
  const double least = 0.5 * (1 - double{args.params.top_p}) / all.vocabulary;
  return KeyOf(WeightBits(static_cast<float>(least)), kMaxVocabulary - 1);
}

// Restricts `all` to a list of the candidates that top-k and top-p may keep, when the list has room
// for them. Returns the mass of all candidates of the row.
__device__ uint64_t Narrow(SearchMemory& m, const SamplingRowArgs& args, WeightCandidates& all) {
  const uint64_t guess = LeastKept(m, args, all);
  if (guess != 0) {
    const WalkTotals met = List<true>(m, all, guess);
    if (met.count <= kMaxCandidates) {
      all.listed = met.count;
      all.list = m.list;
      return met.mass;
    }
  }
  // For flat distributions: finds the top digit in which the walk ends, and lists the candidates
  // from this digit up.
  CountDigits<true>(m, all, kTopShift, 0);
  const bool by_count = args.params.top_k > 0 && args.params.top_k < all.vocabulary;
  const uint64_t most = by_count ? static_cast<uint64_t>(args.params.top_k) - 1 : kMaxVocabulary;
  Crossing crossing = FindCrossing(m, {false, most}, {});
  const uint64_t mass = crossing.total.mass;
  if (!by_count && args.params.top_p < 1)
    crossing = FindCrossing(m, TopP(args.params.top_p, mass), {});
  const uint32_t kept =
      crossing.count == 0 ? crossing.total.count : crossing.before.count + crossing.count;
  if (kept > kMaxCandidates) return mass;
  const uint64_t least = crossing.count == 0 ? 0 : uint64_t{crossing.digit} << kTopShift;
  all.listed = List<false>(m, all, least).count;
  all.list = m.list;
  return mass;
}

__global__ void __launch_bounds__(kSearchThreads)
    SortedDraw(const SamplingPlan plan, const float* logits, int64_t stride) {
  extern __shared__ uint64_t memory[];
  SearchMemory& m = *reinterpret_cast<SearchMemory*>(memory);
  WaitForPredecessor();
  const uint32_t row = blockIdx.x;
  const SamplingRowArgs args = plan.args[row];
  if (args.kind != SamplingKind::kSorted) return;
  const float highest = LogitOf(plan.best[row]);
  // No draw: if the highest logit is +∞, its token is already chosen; if it is −∞, none can be.
  if (!(fabsf(highest) <= kLargestLogit)) return;
  WeightCandidates candidates{logits + row * stride, plan.vocabulary, highest, args.scale};
  uint64_t mass = Narrow(m, args, candidates);
  // Top-k, then top-p, then min-p. Each keeps the most probable of the remaining candidates, so the
  // mass of the kept candidates describes them completely.
  if (args.params.top_k > 0 && args.params.top_k < plan.vocabulary) {
    mass = FindWalkEnd<true>(m, candidates, {false, static_cast<uint64_t>(args.params.top_k) - 1})
               .met.mass;
  }
  if (args.params.top_p < 1)
    mass = FindWalkEnd<true>(m, candidates, TopP(args.params.top_p, mass)).met.mass;
  if (args.params.min_p > 0) {
    uint64_t above = 0;
    candidates([&](uint64_t key) {
      if (WeightOf(key) >= args.params.min_p) above += Fixed(WeightOf(key));
    });
    above = BlockReduce(above, Add());
    if (threadIdx.x == 0) m.key = min(mass, above);
    __syncthreads();
    mass = m.key;
    __syncthreads();
  }
  const auto drawn = static_cast<uint64_t>(args.draw * static_cast<double>(mass));
  const WalkEnd cut = FindWalkEnd<true>(m, candidates, {true, min(drawn, mass - 1)});
  if (threadIdx.x == 0) plan.tokens[row] = TokenOf(cut.key);
}

__global__ void __launch_bounds__(kSearchThreads)
    ListTopLogprobs(const SamplingPlan plan, const float* logits, int64_t stride) {
  extern __shared__ uint64_t memory[];
  SearchMemory& m = *reinterpret_cast<SearchMemory*>(memory);
  WaitForPredecessor();
  const uint32_t row = blockIdx.x;
  const SamplingRowArgs args = plan.args[row];
  if (args.kind == SamplingKind::kNone || args.params.top_logprobs <= 0) return;
  const LogitCandidates all{logits + row * stride, plan.vocabulary};
  const auto wanted = static_cast<uint32_t>(min(args.params.top_logprobs, plan.vocabulary));
  uint32_t listed = List<false>(m, all, LowerBound(m, all, wanted)).count;
  if (listed > kMaxCandidates) {
    listed = List<false>(m, all, FindWalkEnd<false>(m, all, {false, wanted - 1}).key).count;
  }
  const double highest = LogitOf(plan.unedited[row]);
  const double log_sum = plan.log_sums[row];
  TokenLogprob* out = plan.top_list + int64_t{row} * plan.top;
  for (uint32_t i = threadIdx.x; i < listed; i += kSearchThreads) {
    const uint64_t key = m.list[i];
    uint32_t rank = 0;
    for (uint32_t k = 0; k < listed; ++k) rank += m.list[k] > key ? 1 : 0;
    if (rank >= wanted) continue;
    const float logit = FromOrderedBits(ValueOf(key));
    out[rank] = {TokenOf(key), static_cast<float>(static_cast<double>(logit) - highest - log_sum)};
  }
  for (uint32_t i = listed + threadIdx.x; i < wanted; i += kSearchThreads) out[i] = {-1, 0.0f};
}

cudaError_t Launch(void (*kernel)(SamplingPlan, const float*, int64_t),
                   const SamplingPlan& plan,
                   const float* logits,
                   int64_t stride,
                   cudaStream_t stream) {
  static_assert(sizeof(SearchMemory) <= kPortableSharedBytes);
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(SearchMemory));
  if (error != cudaSuccess) return error;
  return LaunchOverlapped(kernel,
                          dim3(plan.rows),
                          dim3(kSearchThreads),
                          sizeof(SearchMemory),
                          stream,
                          plan,
                          logits,
                          stride);
}

}  // namespace

cudaError_t LaunchSortedDraw(const SamplingPlan& plan,
                             const float* logits,
                             int64_t stride,
                             cudaStream_t stream) {
  return Launch(SortedDraw, plan, logits, stride, stream);
}

cudaError_t LaunchTopLogprobs(const SamplingPlan& plan,
                              const float* logits,
                              int64_t stride,
                              cudaStream_t stream) {
  return Launch(ListTopLogprobs, plan, logits, stride, stream);
}

}  // namespace baton::cuda
