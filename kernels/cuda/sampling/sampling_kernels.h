#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "common/base/token_id.h"
#include "kernels/sampling.h"
#include "kernels/tensor.h"

namespace baton::cuda {

// Ids of tokens fit here, so that a logit and its token are one ordered number.
constexpr int32_t kIdBits = 18;
constexpr int32_t kMaxVocabulary = 1 << kIdBits;
// Tokens a row's range may have, so that a thread block can count occurrences in shared memory.
constexpr int32_t kMaxRange = 8192;
constexpr int32_t kMaxSplits = 64;
// Candidates that one thread block sorts; also the longest list of logprobs.
constexpr int32_t kMaxCandidates = 4096;

enum class SamplingKind : int32_t {
  kNone,      // padding
  kGreedy,    // the highest
  kUnsorted,  // a draw, walking in order of ids
  kSorted,    // a draw, walking from the most probable down
};

struct LogitBias {
  TokenId token;
  float bias;
};

// What the kernels know of one row. Lists lie in the buffer of lists, at byte offsets.
struct SamplingRowArgs {
  SamplingKind kind = SamplingKind::kNone;
  int32_t top = -1;   // SamplingParams::top_logprobs
  float scale = 1;    // 1 / temperature
  int32_t top_k = 0;  // 0: all
  double top_p = 1;
  double draw = 0;  // in [0, 1)
  float min_p = 0;
  float repetition = 1;
  float presence = 0;
  float frequency = 0;
  uint64_t bias_at = 0;  // LogitBias, equal tokens side by side, in the order of their addition
  uint64_t banned_at = 0;
  uint64_t output_at = 0;
  uint64_t prompt_at = 0;
  int32_t bias_count = 0;
  int32_t banned_count = 0;
  int32_t output_count = 0;
  int32_t prompt_count = 0;
  int64_t undo_at = 0;  // index of its first entry in SamplingPlan::undo

  constexpr bool edited() const {
    return bias_count + banned_count + output_count + prompt_count > 0;
  }
};

// What some row of a step needs.
enum SamplingWork : uint32_t {
  kEditWork = 1,      // bias, banned tokens, penalties
  kUnsortedWork = 2,  // a draw in order of ids
  kSortedWork = 4,    // a draw from the most probable down
  kLogprobWork = 8,
};

// Which kernels choose a step's tokens, and the device addresses of their arguments; see
// AttentionPlan for what equality means.
struct SamplingPlan {
  int32_t rows = 0;  // padded
  int32_t vocabulary = 0;
  int32_t splits = 0;                     // thread blocks that share a row
  int32_t range = 0;                      // tokens of each but the last
  int32_t top = 0;                        // room in a row's list of logprobs
  uint32_t work = 0;                      // SamplingWork
  const SamplingRowArgs* args = nullptr;  // [rows]
  const std::byte* lists = nullptr;
  // Scratch.
  uint64_t* partials = nullptr;  // [rows][splits]
  uint32_t* finished = nullptr;  // [rows]; splits that are done, 0 between kernels
  uint64_t* best = nullptr;      // [rows]; the highest logit after edits, with its token
  uint64_t* unedited = nullptr;  // [rows]; the highest before, of rows with logprobs
  double* log_sums = nullptr;    // [rows]; log Σ exp(logit − highest) of rows with logprobs
  float* undo = nullptr;         // logits before each list entry changed them
  // Results, which lie together from `tokens` on.
  int32_t* tokens = nullptr;         // [rows]
  int32_t* failed = nullptr;         // [rows]; 1: no token has a probability
  float* logprobs = nullptr;         // [rows]
  TokenLogprob* top_list = nullptr;  // [rows][top]; token −1: no more

  bool operator==(const SamplingPlan&) const = default;
};

// Issues all kernels of `plan` on `logits` (f32, overwritten).
cudaError_t LaunchSampling(const SamplingPlan& plan, const Tensor& logits, cudaStream_t stream);

// Parts of LaunchSampling, each in its own file. Draws of rows with top-k or top-p:
cudaError_t LaunchSortedDraw(const SamplingPlan& plan,
                             const float* logits,
                             int64_t stride,
                             cudaStream_t stream);
// The lists of logprobs; and, once the tokens are chosen, theirs.
cudaError_t LaunchTopLogprobs(const SamplingPlan& plan,
                              const float* logits,
                              int64_t stride,
                              cudaStream_t stream);
cudaError_t LaunchChosenLogprobs(const SamplingPlan& plan,
                                 const float* logits,
                                 int64_t stride,
                                 cudaStream_t stream);

}  // namespace baton::cuda
