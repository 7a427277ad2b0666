#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

#include <fmt/format.h>

#include "common/base/token_id.h"

namespace baton {

// A number that only compares with its own kind. `Tag` makes the kind.
template <class Tag, class T>
class StrongId {
 public:
  using Value = T;
  constexpr StrongId() = default;
  constexpr explicit StrongId(T value) : value_(value) {}
  constexpr T value() const { return value_; }
  constexpr auto operator<=>(const StrongId&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const StrongId& id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  T value_{};
};

// One user request; chosen by the router, unique within a cluster's life.
using RequestId = StrongId<struct RequestIdTag, uint64_t>;
// One request's KV hand-off between a prefill and a decode worker.
using SessionId = StrongId<struct SessionIdTag, uint64_t>;
// The attempt at a request: grows each time the router dispatches it again. Old epochs are stale.
using Epoch = StrongId<struct EpochTag, uint32_t>;
// Index of a block in one arena.
using BlockId = StrongId<struct BlockIdTag, uint32_t>;
// One start of one process: random, so that a restarted worker is never taken for its predecessor.
using BootId = StrongId<struct BootIdTag, uint64_t>;
// Configured or derived name of a worker, stable over restarts.
using WorkerId = StrongId<struct WorkerIdTag, std::string>;

}  // namespace baton

template <class Tag, class T>
struct std::hash<baton::StrongId<Tag, T>> {
  size_t operator()(const baton::StrongId<Tag, T>& id) const { return std::hash<T>{}(id.value()); }
};

template <class Tag, class T>
struct fmt::formatter<baton::StrongId<Tag, T>> : fmt::formatter<T> {
  template <typename Context>
  auto format(const baton::StrongId<Tag, T>& id, Context& context) const {
    return fmt::formatter<T>::format(id.value(), context);
  }
};
