#pragma once

#include <cstdint>
#include <vector>

#include "common/base/hash.h"

namespace baton {

// One change of the prefix cache. Sequence numbers are consecutive and start from 1 at each start
// of the process.
struct CacheEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  uint64_t sequence = 0;
  Kind kind = Kind::kStored;
  std::vector<Hash128> blocks;

  bool operator==(const CacheEvent&) const = default;
};

}  // namespace baton
