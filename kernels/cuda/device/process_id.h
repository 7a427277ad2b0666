#pragma once

#include <cstdint>

#include "common/base/hash.h"

namespace baton::cuda {

// A random number of this process, by which the address of memory in this process is told from
// that of memory in another one.
inline uint64_t ProcessId() {
  static const uint64_t id = RandomId();
  return id;
}

}  // namespace baton::cuda
