#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace baton {

// A 128-bit hash value.
struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const Hash128&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Hash128& v) {
    return H::combine(std::move(h), v.low);
  }
};

// XXH3 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md), 64 and 128 bits.
uint64_t Xxh3(std::span<const std::byte> bytes, uint64_t seed = 0);
Hash128 Xxh3Wide(std::span<const std::byte> bytes, uint64_t seed = 0);

// A random number from the operating system, for ids of processes and requests. Not for sampling.
uint64_t RandomId();

}  // namespace baton

template <>
struct std::hash<baton::Hash128> {
  size_t operator()(const baton::Hash128& v) const { return v.low; }
};

template <>
struct fmt::formatter<baton::Hash128> : fmt::formatter<uint64_t> {
  template <typename Context>
  auto format(const baton::Hash128& v, Context& context) const {
    return fmt::format_to(context.out(), "{:016x}{:016x}", v.high, v.low);
  }
};
