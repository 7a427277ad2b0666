#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "kernels/sampling.h"

namespace baton {

// The part of a request that this engine does.
enum class RequestKind {
  kServe,    // compute the prompt and generate to the end
  kPrefill,  // compute the prompt, choose the first token(s), then hold the prompt's KV until
             // ReleaseKv
  kDecode,   // reserve blocks for a prompt whose KV arrives from a prefill worker, then generate
};

// A request to the engine. (id, epoch) identifies it: a later epoch of the same id is a new
// request.
struct Request {
  RequestId id;
  Epoch epoch;
  RequestKind kind = RequestKind::kServe;
  // The prompt, followed by tokens already generated in an earlier epoch (resume). At least one.
  std::vector<TokenId> tokens;
  // How many of `tokens` are the user's prompt. The rest counts as output for penalties, max_tokens
  // and output indices. With resumed output, `samples` is 1 and `first_sample` is the index of this
  // sample.
  int32_t prompt_length = 0;
  int32_t samples = 1;  // parallel samples ("n")
  int32_t first_sample = 0;
  SamplingParams sampling;  // sample i draws with a seed derived from (seed, i)
  int32_t max_tokens = 16;  // most output tokens, resumed tokens included
  int32_t min_tokens = 0;
  std::vector<TokenId> stop_tokens;  // end the sequence; the token is emitted as the last one
  int32_t priority = 0;              // under the priority policy the highest is first
  Time arrival{};
  Time deadline = kNever;
  std::string cache_salt;  // separates tenants in the prefix cache
};

enum class FinishReason {
  kNone,       // more tokens follow
  kStop,       // a stop token was chosen
  kLength,     // max_tokens, the context length or the size of the KV arena is reached
  kHandedOff,  // kPrefill only: this was the first token; a decode worker continues
};

// One token of one sample. `index` counts output tokens from 0 (resumed ones included).
struct TokenOutput {
  RequestId id;
  Epoch epoch;
  int32_t sample = 0;
  int32_t index = 0;
  SampledToken token;
  FinishReason finish = FinishReason::kNone;
};

// The time that a request spent in each state; reported with its end.
struct RequestTimes {
  Duration queued{};   // arrival → first step
  Duration prefill{};  // first step → first token (kServe, kPrefill)
  int32_t cached_tokens = 0;
  int32_t preemptions = 0;
};

// A request that ended without completing: cancelled, out of time, or refused by the engine.
struct RequestFailure {
  RequestId id;
  Epoch epoch;
  Status status;
};

}  // namespace baton
