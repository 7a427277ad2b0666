#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/base/token_id.h"

namespace baton {

// How the next token is chosen. The order is: logit bias and banned tokens; repetition, presence
// and frequency penalties; then, at temperature 0, argmax (of equal logits, the lower id),
// otherwise temperature, top-k, top-p, min-p and one draw.
struct SamplingParams {
  float temperature = 1.0f;         // 0 = greedy
  int32_t top_k = 0;                // 0 = all
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1], relative to the most probable token
  float repetition_penalty = 1.0f;  // > 0, over prompt and output (CTRL, arXiv:1909.05858)
  float presence_penalty = 0.0f;    // over the output
  float frequency_penalty = 0.0f;   // over the output
  uint64_t seed = 0;
  int32_t top_logprobs = -1;  // -1: no logprobs; k ≥ 0: the chosen token's and the k highest
  std::vector<std::pair<TokenId, float>> logit_bias;

  // Whether the choice depends on the tokens of the output so far.
  bool looks_at_output() const {
    return repetition_penalty != 1.0f || presence_penalty != 0 || frequency_penalty != 0;
  }
};

// One row of logits to sample from. The draw is a function of (params.seed, position) alone, so
// that a retried or resumed request draws the same number: `position` is the index, in the whole
// sequence, of the token being chosen.
struct SamplingRow {
  const SamplingParams* params = nullptr;
  uint64_t position = 0;
  std::span<const TokenId> prompt;
  std::span<const TokenId> output;
  std::span<const TokenId> banned;  // e.g. end tokens before min_tokens
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
};

// No token can be chosen: all logits of the row are NaN or -inf.
inline constexpr TokenId kNoToken = -1;

// Logprobs are those of the unedited logits, before any step of SamplingParams.
struct SampledToken {
  TokenId token = 0;              // or kNoToken
  float logprob = 0;              // set when top_logprobs ≥ 0
  std::vector<TokenLogprob> top;  // highest first
};

// The draw: a number in [0, 1) with 53 random bits, Philox4x32-10 (Salmon et al., SC 2011) with key
// `seed` and counter `position`.
double UniformDraw(uint64_t seed, uint64_t position);

}  // namespace baton
