#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/sampling_params.h"
#include "common/text/tokenizer.h"
#include "router/generation.h"

namespace baton::router {

// The logprobs of a token for its client. `text_offset` as in TokenLogprobs.
TokenLogprobs LogprobsOf(const Tokenizer& tokenizer,
                         const SampledToken& token,
                         int64_t text_offset);

// The same for a whole prompt: its first token, which has no logprob, and the `rest`. The offsets
// are in the text of the prompt without its special tokens.
std::vector<TokenLogprobs> LogprobsOfPrompt(const Tokenizer& tokenizer,
                                            TokenId first,
                                            std::span<const SampledToken> rest);

}  // namespace baton::router
