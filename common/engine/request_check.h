#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "common/cluster/request.h"

namespace baton {

struct RequestLimits {
  int32_t context_length = 0;
  int32_t vocabulary = 0;
  int32_t max_samples = 0;
  int32_t scored_rows = 0;  // the most positions of prompts that get logits in one step
};

// An engine has logit rows for this many positions of prompts in one step, beside one for each of
// max_sequences. The bound is for the memory of logits; a step that computes none has no such
// bound.
constexpr int32_t kScoredRows = 64;

// InvalidArgument naming the field, its value and the valid values, when no engine with these
// limits can serve `request`: an empty or too long prompt, token ids outside the vocabulary,
// numbers that are out of range or NaN.
Status CheckRequest(const Request& request, const RequestLimits& limits);

}  // namespace baton
