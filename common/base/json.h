#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"

// The one place where JSON from outside is parsed: request bodies, JSON inside gRPC messages, model
// files. The JSON library copies, compares and prints values by recursion, so depth is bounded
// here, while parsing.
namespace baton {

// Levels of arrays and objects inside one another.
constexpr int kMaxJsonDepth = 60;

// `text` as a value. Takes time linear in `text` (n log n for the sorted members of
// nlohmann::json). Of equal keys the last one counts. Errors: InvalidArgument that begins with
// `what`, the name of the text for the user, and says the line and column of what is not JSON, or
// the member that is nested deeper than kMaxJsonDepth.
StatusOr<nlohmann::json> ParseJson(std::string_view what, std::string_view text);
// The same; objects keep the order of their members.
StatusOr<nlohmann::ordered_json> ParseOrderedJson(std::string_view what, std::string_view text);
// The path of the member that an error of these names as nested too deeply, "messages[0].content";
// empty for other errors.
std::string TooDeepMember(const Status& status);

}  // namespace baton
