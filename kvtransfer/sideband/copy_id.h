#pragma once

#include <cstdint>

// The ids under which an operation's work is given to a DmaQueue or a Copier: one for moving its
// bytes, one for its checksums.
namespace baton {

constexpr uint64_t MoveId(uint64_t op) {
  return op << 1;
}
constexpr uint64_t ChecksumId(uint64_t op) {
  return op << 1 | 1;
}
constexpr uint64_t OpOf(uint64_t id) {
  return id >> 1;
}
constexpr bool IsChecksum(uint64_t id) {
  return (id & 1) != 0;
}

}  // namespace baton
