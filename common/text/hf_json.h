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

// Read the parts of a tokenizer.json that determine how text is prepared for merging and decoded.
// Errors name the part.
Status ReadNormalizer(const nlohmann::json& component, TokenizerSpec& spec);
Status ReadPreTokenizer(const nlohmann::json& component, TokenizerSpec& spec);
Status ReadDecoder(const nlohmann::json& component, TokenizerSpec& spec);

}  // namespace baton
