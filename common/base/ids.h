#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/token_id.h"

namespace baton {

// A value that can be compared only with ids of the same kind. Each `Tag` makes a kind of its own.
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

// One user request. The router chooses the id; it is unique in the cluster.
using RequestId = StrongId<struct RequestIdTag, uint64_t>;
// One request's KV hand-off between a prefill and a decode worker.
using SessionId = StrongId<struct SessionIdTag, uint64_t>;
// The number of an attempt or redirect of a request. It grows each time the router dispatches the
// request again; messages of an older epoch are dropped.
using Epoch = StrongId<struct EpochTag, uint32_t>;
// One start of one process. It is random, so that a restarted worker is never mistaken for the
// process before it.
using BootId = StrongId<struct BootIdTag, uint64_t>;
// The configured or derived name of a worker. It stays the same over restarts.
using WorkerId = StrongId<struct WorkerIdTag, std::string>;

// A block of KV memory: the number `index` of those of a tier. Kernels, copies and peers know only
// the blocks of kDeviceTier, the arena of the device; there value() is the index.
class BlockId final : public StrongId<struct BlockIdTag, uint32_t> {
 public:
  static constexpr int kIndexBits = 24;
  static constexpr uint32_t kDeviceTier = 0;

  constexpr BlockId() = default;
  constexpr explicit BlockId(uint32_t value) : StrongId(value) {}
  constexpr BlockId(uint32_t tier, uint32_t index) : StrongId(tier << kIndexBits | index) {}

  constexpr uint32_t tier() const { return value() >> kIndexBits; }
  constexpr uint32_t index() const { return value() & ((uint32_t{1} << kIndexBits) - 1); }
  // The index of a block that must be in the arena of the device.
  constexpr uint32_t arena_index() const {
    BATON_CHECK(tier() == kDeviceTier, "block {} of tier {} is not in the arena", index(), tier());
    return value();
  }
  // Whether the block is in an arena of `blocks` blocks.
  constexpr bool InArena(uint32_t blocks) const {
    return tier() == kDeviceTier && index() < blocks;
  }
};

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

// "7"; "7 of tier 1".
template <>
struct fmt::formatter<baton::BlockId> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  template <typename Context>
  auto format(const baton::BlockId& id, Context& context) const {
    if (id.tier() == baton::BlockId::kDeviceTier)
      return fmt::format_to(context.out(), "{}", id.index());
    return fmt::format_to(context.out(), "{} of tier {}", id.index(), id.tier());
  }
};
