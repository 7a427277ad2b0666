#pragma once

#include <exception>
#include <optional>
#include <string>

namespace baton {

// Runs `body`. Returns the message of the exception that `body` threw, or nothing when it threw
// none. For threads that run the work of many requests: a failure in one of them must not end the
// process.
template <class F>
std::optional<std::string> CaughtFrom(F&& body) {
  try {
    body();
    return std::nullopt;
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

}  // namespace baton
