#include "router/text/token_logprobs.h"

#include <string>

#include "common/text/detokenizer.h"
#include "common/text/utf8.h"

namespace baton::router {
namespace {

TextLogprob Describe(const Tokenizer& tokenizer, TokenId token, float logprob) {
  TextLogprob out{token, logprob, {}};
  if (tokenizer.Contains(token)) out.piece = std::string(tokenizer.piece(token));
  return out;
}

}  // namespace

TokenLogprobs LogprobsOf(const Tokenizer& tokenizer,
                         const SampledToken& token,
                         int64_t text_offset) {
  TokenLogprobs out;
  out.text_offset = text_offset;
  out.chosen = Describe(tokenizer, token.token, token.logprob);
  for (const TokenLogprob& top : token.top) {
    out.top.push_back(Describe(tokenizer, top.token, top.logprob));
  }
  return out;
}

std::vector<TokenLogprobs> LogprobsOfPrompt(const Tokenizer& tokenizer,
                                            TokenId first,
                                            std::span<const SampledToken> rest) {
  Detokenizer text(tokenizer, {.skip_special = true});
  int64_t characters = 0;
  std::vector<TokenLogprobs> out;
  const auto add = [&](const SampledToken& token) {
    out.push_back(LogprobsOf(tokenizer, token, characters));
    characters += static_cast<int64_t>(CountCodePoints(text.Append(token.token)));
  };
  add({first, 0, {}});
  out.back().known = false;
  for (const SampledToken& token : rest) add(token);
  return out;
}

}  // namespace baton::router
