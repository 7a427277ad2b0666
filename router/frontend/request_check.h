#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/status.h"
#include "common/model/generation_defaults.h"
#include "router/generation.h"

namespace baton::router {

constexpr int32_t kMaxSamples = 64;

struct RequestLimits {
  int32_t vocabulary = 0;
  size_t max_stops = 64;
  size_t max_stop_bytes = 1024;
  size_t max_stop_tokens = 64;
  size_t max_logit_bias = 1024;
  size_t max_turns = 10'000;
  int32_t max_samples = kMaxSamples;
  int32_t max_top_logprobs = 20;
};

// All checks that do not need the prompt's tokens. Errors: InvalidArgument naming the field (in the
// API's own spelling, FieldNames), its value, and what would be right.
Status CheckRequest(const GenerationRequest& request, const RequestLimits& limits);

// The check of prompt_logprobs that needs the length of the prompt: the logprobs of a prompt come
// in one message.
Status CheckPromptLogprobs(const GenerationRequest& request, size_t prompt_tokens);

// The sampling parameters of the request. A missing parameter is filled from the model's
// `defaults`, then from the API's; a missing seed becomes `seed`.
SamplingParams ResolveSampling(const GenerationRequest& request,
                               const GenerationDefaults& defaults,
                               uint64_t seed);

}  // namespace baton::router
