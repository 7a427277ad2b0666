#pragma once

#include <cstdint>
#include <string_view>

namespace baton {

// FNV-1a of 64 bits, as the scripts beside the test data compute it.
inline uint64_t Fnv1a(std::string_view bytes) {
  uint64_t value = 0xcbf29ce484222325;
  for (const char byte : bytes) value = (value ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return value;
}

}  // namespace baton
