#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// Careful access to a tokenizer.json: missing members and members of another type give the
// fallback.
const nlohmann::json& MemberOf(const nlohmann::json& object, std::string_view name);
std::string TextMember(const nlohmann::json& object,
                       std::string_view name,
                       std::string_view fallback = "");
bool BoolMember(const nlohmann::json& object, std::string_view name, bool fallback);
// The `type` of a component, "null" when it is absent.
std::string TypeOf(const nlohmann::json& component);

// The parts of a tokenizer.json that decide how text is prepared. Errors name the part.
Status ReadNormalizer(const nlohmann::json& component, TokenizerSpec& spec);
Status ReadPreTokenizer(const nlohmann::json& component, TokenizerSpec& spec);
Status ReadDecoder(const nlohmann::json& component, TokenizerSpec& spec);

}  // namespace baton
