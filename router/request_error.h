#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/status.h"

// What clients' errors say beside code and message, carried as payloads of a Status.
namespace baton::router {

// The reasons that clients' programs look for, in OpenAI's words
// (https://platform.openai.com/docs/guides/error-codes).
namespace reason {
inline constexpr std::string_view kContextLengthExceeded = "context_length_exceeded";
inline constexpr std::string_view kModelNotFound = "model_not_found";
inline constexpr std::string_view kUnknownParameter = "unknown_parameter";
inline constexpr std::string_view kUnsupportedParameter = "unsupported_parameter";
}  // namespace reason

// `status` with the name of the request's member at fault: "messages[2].role". A name that is set
// already stays, since it is more exact. OK stays OK.
Status AtMember(Status status, std::string_view member);
// The member at fault, or empty.
std::string MemberOf(const Status& status);

// `status` with one of the reasons above.
Status WithReason(Status status, std::string_view reason);
// The reason, or empty.
std::string ReasonOf(const Status& status);

// InvalidArgument for the member `member`.
template <class... Args>
Status InvalidMember(std::string_view member, fmt::format_string<Args...> format, Args&&... args) {
  return AtMember(InvalidArgument(format, std::forward<Args>(args)...), member);
}

// A client's text as an error may repeat it: what is longer than `most` bytes is cut between two
// characters and followed by its length, "aaaa… (1048576 bytes)".
std::string Shown(std::string_view text, size_t most = 64);

}  // namespace baton::router
