#pragma once

#include <string>

#include <fmt/format.h>

namespace baton {

// Prints the place, the condition and the message to stderr, then aborts. For broken invariants of
// Baton itself, never for bad input.
[[noreturn]] void CheckFailed(const char* file,
                              int line,
                              const char* condition,
                              const std::string& message);

}  // namespace baton

// BATON_CHECK(refs > 0, "block {} released twice", id): an invariant that holds in every build
// type.
#define BATON_CHECK(condition, ...)                                                     \
  do {                                                                                  \
    if (!(condition)) [[unlikely]] {                                                    \
      ::baton::CheckFailed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
    }                                                                                   \
  } while (false)
