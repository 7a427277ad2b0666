#pragma once

#include <span>

#include "kernels/sampling.h"

namespace baton::parity {

// A token sampled exactly as kernels/sampling.h specifies, in double precision, by sorting.
struct ReferenceToken {
  TokenId token = 0;
  // The distance in probability of the draw and the cuts from a different token. When it is tiny, a
  // backend that computes in float32 may choose another token.
  double margin = 1;
  double logprob = 0;  // in the unmodified distribution
};

// At least one logit must not be NaN.
ReferenceToken ReferenceSample(std::span<const float> logits, const SamplingRow& row);

}  // namespace baton::parity
