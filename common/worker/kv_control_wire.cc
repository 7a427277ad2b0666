#include "common/worker/kv_control_wire.h"

namespace baton {

std::string EncodeFirstTokens(const std::vector<SampledToken>& tokens) {
  kv::v1::FirstTokens payload;
  for (const SampledToken& token : tokens) {
    kv::v1::FirstToken* entry = payload.add_tokens();
    entry->set_token(token.token);
    entry->set_logprob(token.logprob);
    for (const TokenLogprob& top : token.top) {
      entry->add_top_tokens(top.token);
      entry->add_top_logprobs(top.logprob);
    }
  }
  return payload.SerializeAsString();
}

StatusOr<std::vector<SampledToken>> DecodeFirstTokens(const std::string& payload) {
  kv::v1::FirstTokens parsed;
  if (!parsed.ParseFromString(payload)) {
    return InvalidArgument("the payload of SEAL is not a FirstTokens message");
  }
  std::vector<SampledToken> tokens;
  for (const kv::v1::FirstToken& entry : parsed.tokens()) {
    if (entry.top_tokens_size() != entry.top_logprobs_size()) {
      return InvalidArgument("SEAL has {} top tokens and {} top logprobs; the counts must be equal",
                             entry.top_tokens_size(),
                             entry.top_logprobs_size());
    }
    SampledToken token{entry.token(), entry.logprob(), {}};
    for (int i = 0; i < entry.top_tokens_size(); ++i) {
      token.top.push_back({entry.top_tokens(i), entry.top_logprobs(i)});
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace baton
