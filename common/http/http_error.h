#pragma once

#include <string>
#include <string_view>

namespace baton {

inline constexpr const char* kHttpErrorType = "application/json";

// The body of an error answer of the server itself. On every port it has the shape of the OpenAI
// API, and the member `type` of Anthropic's:
// {"type": "error", "error": {"message": …, "type": …, "param": null, "code": …}}.
std::string HttpErrorBody(int status, std::string_view message);

}  // namespace baton
