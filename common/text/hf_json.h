#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// Safe access to the members of a tokenizer.json: each function returns the fallback for a member
// that is missing or has another type. The fallback of MemberOf is null.
const nlohmann::json& MemberOf(const nlohmann::json& object, std::string_view name);
std::string TextMember(const nlohmann::json& object,
                       std::string_view name,
                       std::string_view fallback = "");
bool BoolMember(const nlohmann::json& object, std::string_view name, bool fallback);
// The `type` of a component; "null" when there is no component.
std::string TypeOf(const nlohmann::json& component);

// The tokens of a tokenizer_config.json, for files beside it that have none themselves:
// `added_tokens_decoder`, with ids from `first_id` on.
Status ReadAddedTokensDecoder(const nlohmann::json& config, size_t first_id, TokenizerSpec& spec);
// Which tokens of the spec the config calls bos_token, eos_token and pad_token.
void NameTokens(const nlohmann::json& config, TokenizerSpec& spec);

// Read the parts of a tokenizer.json that determine how text is prepared for merging and decoded.
// Errors name the part.
Status ReadNormalizer(const nlohmann::json& component, TokenizerSpec& spec);
Status ReadPreTokenizer(const nlohmann::json& component, TokenizerSpec& spec);
Status ReadDecoder(const nlohmann::json& component, TokenizerSpec& spec);

}  // namespace baton
