#pragma once

#include <cstdint>
#include <vector>

#include "common/base/hash.h"

namespace baton {

// A change of the prefix cache, in order. Sequence numbers count from 1 per boot.
struct CacheEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  uint64_t sequence = 0;
  Kind kind = Kind::kStored;
  std::vector<Hash128> blocks;
};

}  // namespace baton
