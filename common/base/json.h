#pragma once

#include <exception>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"

// The one place where JSON from outside is parsed: request bodies, JSON inside gRPC messages, model
// files. The JSON library copies, compares and prints values by recursion, so depth is bounded
// here, while parsing.
namespace baton {

// The most levels of nested arrays and objects.
constexpr int kMaxJsonDepth = 60;

// Parses `text` in linear time (n log n for the sorted members of nlohmann::json). When an object
// has a key twice, the last value is kept. Errors: InvalidArgument. Its message begins with `what`,
// the name of the text for the user, and names the line and column of the syntax error, or the
// member that is nested deeper than kMaxJsonDepth.
StatusOr<nlohmann::json> ParseJson(std::string_view what, std::string_view text);
// The same; objects keep the order of their members.
StatusOr<nlohmann::ordered_json> ParseOrderedJson(std::string_view what, std::string_view text);
// `status` is an error of ParseJson or ParseOrderedJson. The path of the member that is nested too
// deeply, such as "messages[0].content"; empty for other errors.
std::string TooDeepMember(const Status& status);
// The error for a SAX parser of the JSON library: `text`, which is called `what`, is not valid
// JSON. `position` and `error` are the arguments of the parser's parse_error.
Status JsonSyntaxError(std::string_view what,
                       std::string_view text,
                       size_t position,
                       const std::exception& error);

}  // namespace baton
