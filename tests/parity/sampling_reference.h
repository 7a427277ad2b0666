#pragma once

#include <span>

#include "kernels/sampling.h"

namespace baton::parity {

// A token chosen by the letter of kernels/sampling.h, in double precision, by sorting.
struct ReferenceToken {
  TokenId token = 0;
  // How far the draw and the cuts are from where the token would be another, as a share of the
  // probability: a backend that computes in float32 may choose differently when it is tiny.
  double margin = 1;
  double logprob = 0;  // of the unmodified distribution
};

// Expects a logit that is a number.
ReferenceToken ReferenceSample(std::span<const float> logits, const SamplingRow& row);

}  // namespace baton::parity
