#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "common/base/clock.h"
#include "common/base/sampling_params.h"
#include "common/base/token_id.h"

namespace baton {

class TokenMask;

// One row of logits to sample from. The draw is a function of (params.seed, position) alone, so
// that a retried or resumed request draws the same number: `position` is the index, in the whole
// sequence, of the token being chosen.
struct SamplingRow {
  const SamplingParams* params = nullptr;
  uint64_t position = 0;
  std::span<const TokenId> prompt = {};
  std::span<const TokenId> output = {};
  std::span<const TokenId> banned = {};  // e.g. end tokens before min_tokens
  // The tokens that may be chosen; null: all. When it is not computed within kMaskWait after the
  // logits, the row gets kLateToken, unless it `waits_for_mask`.
  const TokenMask* mask = nullptr;
  bool waits_for_mask = false;
  // The token to choose whatever the logits are, for its logprob. kNoToken: as the parameters say.
  TokenId forced = kNoToken;
  // Where the row's hidden state after the final norm goes, in a step with RowResults other than
  // kLogits. Empty: nowhere.
  std::span<float> state = {};
};

// How long the rows of a step wait together for masks when their logits are computed. A mask is
// usually computed before them.
constexpr Duration kMaskWait = std::chrono::milliseconds(1);

// The draw: a number in [0, 1) with 53 random bits, Philox4x32-10 (Salmon et al., SC 2011) with key
// `seed` and counter `position`.
double UniformDraw(uint64_t seed, uint64_t position);

}  // namespace baton
