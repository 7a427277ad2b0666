#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "common/base/sampling_params.h"
#include "common/base/token_id.h"
#include "kernels/sampling.h"
#include "kernels/tensor.h"

namespace baton::cuda {

// Bits of a token id in the ordered 64-bit key of a logit and its token.
constexpr int32_t kIdBits = 20;
constexpr int32_t kMaxVocabulary = 1 << 19;
// The most tokens in one range of a row, so that a thread block can count occurrences in shared
// memory.
constexpr int32_t kMaxRange = 8192;
constexpr int32_t kMaxSplits = 64;
static_assert(kMaxVocabulary <= 1 << kIdBits && kMaxVocabulary <= kMaxSplits * kMaxRange);
// The most candidates that a thread block can keep in its list; also the longest list of logprobs.
constexpr int32_t kMaxCandidates = 4096;

enum class SamplingKind : int32_t {
  kNone,      // padding
  kGreedy,    // chooses the highest logit
  kUnsorted,  // draws in the order of token ids
  kSorted,    // draws in the order of probability, most probable first (top-k, top-p)
};

struct LogitBias {
  TokenId token;
  float bias;
};

// The sampling parameters of one row. The row's lists are in SamplingPlan::lists, at byte offsets.
struct SamplingRowArgs {
  SamplingKind kind = SamplingKind::kNone;
  SamplingNumbers params;
  float scale = 1;       // 1 / temperature
  double draw = 0;       // in [0, 1)
  uint64_t bias_at = 0;  // LogitBias; equal tokens are adjacent, in the order of addition
  uint64_t banned_at = 0;
  uint64_t output_at = 0;
  uint64_t prompt_at = 0;
  int32_t bias_count = 0;
  int32_t banned_count = 0;
  int32_t output_count = 0;
  int32_t prompt_count = 0;
  uint64_t mask_at = 0;  // words of 32 tokens, see TokenMask
  int32_t masked = 0;    // 1: the row has a mask
  int64_t undo_at = 0;   // index of the row's first entry in SamplingPlan::undo

  constexpr bool edited() const {
    return bias_count + banned_count + output_count + prompt_count + masked > 0;
  }
};

// Work that at least one row of the step needs; bits.
enum SamplingWork : uint32_t {
  kEditWork = 1,      // bias, banned tokens, masks, penalties
  kUnsortedWork = 2,  // a draw in the order of token ids
  kSortedWork = 4,    // a draw in the order of probability
  kLogprobWork = 8,
};

// The kernels that choose a step's tokens, and the device addresses of their arguments. Equality
// has the same meaning as for AttentionPlan.
struct SamplingPlan {
  int32_t rows = 0;  // padded
  int32_t vocabulary = 0;
  int32_t splits = 0;                     // ranges (thread blocks) of a row
  int32_t range = 0;                      // tokens in each range but the last
  int32_t top = 0;                        // capacity of a row's list of logprobs
  uint32_t work = 0;                      // bits of SamplingWork
  const SamplingRowArgs* args = nullptr;  // [rows]
  const std::byte* lists = nullptr;
  // Scratch memory.
  uint64_t* partials = nullptr;  // [rows][kMaxSplits]; the result of each range
  uint32_t* finished = nullptr;  // [rows]; ranges that have finished; 0 between kernels
  uint64_t* best = nullptr;      // [rows]; the highest logit after edits, with its token
  uint64_t* unedited = nullptr;  // [rows]; the highest logit before edits, in rows with logprobs
  double* log_sums = nullptr;    // [rows]; log Σ exp(logit − highest), in rows with logprobs
  float* undo = nullptr;         // for each list entry, the logit before the entry changed it
  // Results. They are contiguous from `tokens` to the end of `logprobs`.
  int32_t* tokens = nullptr;         // [rows]
  int32_t* failed = nullptr;         // [rows]; 1: no token has a probability
  float* logprobs = nullptr;         // [rows]
  TokenLogprob* top_list = nullptr;  // [rows][top]; token −1: end of the list

  bool operator==(const SamplingPlan&) const = default;
};

// Launches all kernels of `plan` on `logits` (f32, overwritten).
cudaError_t LaunchSampling(const SamplingPlan& plan, const Tensor& logits, cudaStream_t stream);

// Parts of LaunchSampling. This one draws the tokens of rows with top-k or top-p.
cudaError_t LaunchSortedDraw(const SamplingPlan& plan,
                             const float* logits,
                             int64_t stride,
                             cudaStream_t stream);
// LaunchTopLogprobs writes the lists of the highest logprobs. LaunchChosenLogprobs writes the
// logprobs of the chosen tokens, after the draws.
cudaError_t LaunchTopLogprobs(const SamplingPlan& plan,
                              const float* logits,
                              int64_t stride,
                              cudaStream_t stream);
cudaError_t LaunchChosenLogprobs(const SamplingPlan& plan,
                                 const float* logits,
                                 int64_t stride,
                                 cudaStream_t stream);

}  // namespace baton::cuda
