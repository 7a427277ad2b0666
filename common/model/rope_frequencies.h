#pragma once

#include <span>
#include <vector>

#include "common/model/model_spec.h"

namespace baton {

struct RopeFrequencies {
  std::vector<float> inverse;  // [rotary_dim / 2], radians per position
  float magnitude = 1;         // multiplies sin and cos
};

// The inverse frequencies of `rope` with its scaling applied. `factors` ([rotary_dim / 2], or
// empty) is the rope_freqs tensor of GGUF files; it divides the frequencies. Formulas: linear
// arXiv:2306.15595, llama3 the Llama 3.1 reference code, yarn arXiv:2309.00071 §3.
RopeFrequencies ComputeRopeFrequencies(const RopeSpec& rope, std::span<const float> factors);

}  // namespace baton
