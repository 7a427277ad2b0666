#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "common/base/status.h"

namespace baton {

// Returns the value. On an error, prints the error and ends the program. For benchmarks.
template <class T>
T Must(StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  fmt::print(stderr, "{}\n", Message(value.status()));
  std::exit(1);
}

inline void Must(const Status& status) {
  if (!status.ok()) Must(StatusOr<int>(status));
}

}  // namespace baton
