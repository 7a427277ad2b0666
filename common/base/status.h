#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <fmt/format.h>

namespace baton {

using absl::Status;
using absl::StatusCode;
using absl::StatusOr;

inline Status OkStatus() {
  return absl::OkStatus();
}

// The status `code` with a formatted message. A message names the thing, the value found, and what
// would be right: "max_tokens is -3; it must be between 1 and 8192".
template <class... Args>
Status MakeStatus(StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

// The message of `status` as a std::string_view (Debian's abseil has its own string_view type).
inline std::string_view Message(const Status& status) {
  return {status.message().data(), status.message().size()};
}

// `status` with "context: " put before its message; OK stays OK.
inline Status Annotate(const Status& status, std::string_view context) {
  if (status.ok()) return status;
  return Status(status.code(), fmt::format("{}: {}", context, Message(status)));
}

}  // namespace baton

#define BATON_CONCAT_INNER(a, b) a##b
#define BATON_CONCAT(a, b) BATON_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expression` is an error.
#define BATON_RETURN_IF_ERROR(expression)                                 \
  do {                                                                    \
    if (::absl::Status baton_status = (expression); !baton_status.ok()) { \
      return baton_status;                                                \
    }                                                                     \
  } while (false)

// BATON_ASSIGN_OR_RETURN(auto x, F()): sets x to F()'s value, or returns F()'s error from the
// enclosing function.
#define BATON_ASSIGN_OR_RETURN(lhs, expression) \
  BATON_ASSIGN_OR_RETURN_IMPL(BATON_CONCAT(baton_result_, __LINE__), lhs, expression)
#define BATON_ASSIGN_OR_RETURN_IMPL(result, lhs, expression) \
  auto result = (expression);                                \
  if (!result.ok()) return std::move(result).status();       \
  lhs = *std::move(result)
