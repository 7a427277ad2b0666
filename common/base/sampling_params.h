#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/token_id.h"

namespace baton {

// The sampling parameters that are numbers. Kernels on GPUs receive a copy.
struct SamplingNumbers {
  float temperature = 1.0f;         // 0 = greedy
  int32_t top_k = 0;                // 0 = all
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1], relative to the most probable token
  float repetition_penalty = 1.0f;  // > 0, over prompt and output (CTRL, arXiv:1909.05858)
  float presence_penalty = 0.0f;    // over the output
  float frequency_penalty = 0.0f;   // over the output
  uint64_t seed = 0;
  int32_t top_logprobs = -1;  // -1: no logprobs; k ≥ 0: the chosen token's and the k highest

  bool operator==(const SamplingNumbers&) const = default;
};

// How the next token is chosen. The steps apply in this order: logit bias, banned tokens and the
// mask; the repetition, presence and frequency penalties; temperature 0 ends here with the highest
// logit, ties going to the lower id; temperature, top-k, top-p, min-p; one draw.
struct SamplingParams : SamplingNumbers {
  std::vector<std::pair<TokenId, float>> logit_bias;  // each token at most once

  // Whether the choice depends on the tokens chosen before.
  bool depends_on_output() const {
    return repetition_penalty != 1.0f || presence_penalty != 0 || frequency_penalty != 0;
  }
  bool operator==(const SamplingParams&) const = default;
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
  bool operator==(const TokenLogprob&) const = default;
};

// Stands for a token when none can be chosen: all logits of the row are NaN or -inf.
inline constexpr TokenId kNoToken = -1;

// Stands for a token that is chosen in a later step: the row's mask was not computed in time.
inline constexpr TokenId kLateToken = -2;

// A chosen token. Logprobs are of the distribution before temperature, penalties and cuts.
struct SampledToken {
  TokenId token = 0;              // or kNoToken, kLateToken
  float logprob = 0;              // set when top_logprobs ≥ 0
  std::vector<TokenLogprob> top;  // highest first
  bool operator==(const SampledToken&) const = default;
};

}  // namespace baton
