#pragma once

#include <span>

#include <nlohmann/json_fwd.hpp>

#include "router/generation.h"

namespace baton::router {

// The logprobs of tokens in the form of OpenAI's chats and responses: an array with the text and
// the bytes of each token.
nlohmann::ordered_json LogprobsJson(std::span<const TokenLogprobs> tokens);

}  // namespace baton::router
