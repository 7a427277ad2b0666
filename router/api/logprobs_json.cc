#include "router/api/logprobs_json.h"

#include <nlohmann/json.hpp>

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

Json TokenJson(const TextLogprob& in) {
  Json bytes = Json::array();
  for (const char c : in.piece) bytes.push_back(static_cast<uint8_t>(c));
  return {{"token", in.piece}, {"logprob", in.logprob}, {"bytes", std::move(bytes)}};
}

}  // namespace

Json LogprobsJson(std::span<const TokenLogprobs> tokens) {
  Json out = Json::array();
  for (const TokenLogprobs& token : tokens) {
    Json one = TokenJson(token.chosen);
    one["top_logprobs"] = Json::array();
    for (const TextLogprob& top : token.top) one["top_logprobs"].push_back(TokenJson(top));
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace baton::router
