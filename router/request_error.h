#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/status.h"

// Further details of clients' errors beside code and message, carried as payloads of a Status.
namespace baton::router {

// Reasons that client programs evaluate, with OpenAI's names
// (https://platform.openai.com/docs/guides/error-codes).
namespace reason {
inline constexpr std::string_view kContextLengthExceeded = "context_length_exceeded";
inline constexpr std::string_view kRateLimitExceeded = "rate_limit_exceeded";
inline constexpr std::string_view kModelNotFound = "model_not_found";
// Anthropic's name.
inline constexpr std::string_view kThreadUnsupported = "thread_unsupported_request";
inline constexpr std::string_view kUnknownParameter = "unknown_parameter";
inline constexpr std::string_view kUnsupportedEndpoint = "unsupported_endpoint";
inline constexpr std::string_view kUnsupportedParameter = "unsupported_parameter";
}  // namespace reason

// Returns `status` with the name of the request's member at fault, for example "messages[2].role".
// A name that is already set stays, because it is more exact. OK stays OK.
Status AtMember(Status status, std::string_view member);
// The member at fault; empty if none is set.
std::string MemberOf(const Status& status);

// Returns `status` with one of the reasons above.
Status WithReason(Status status, std::string_view reason);
// The reason; empty if none is set.
std::string ReasonOf(const Status& status);

// InvalidArgument that names `member` as the member at fault.
template <class... Args>
Status InvalidMember(std::string_view member, fmt::format_string<Args...> format, Args&&... args) {
  return AtMember(InvalidArgument(format, std::forward<Args>(args)...), member);
}

// A client's text in the form in which errors repeat it: a text longer than `most` bytes is cut
// between two characters and followed by its length, "aaaa… (1048576 bytes)".
std::string Shown(std::string_view text, size_t most = 64);

}  // namespace baton::router
