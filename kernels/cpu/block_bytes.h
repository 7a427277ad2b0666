#pragma once

#include <cstddef>
#include <cstdint>

// Numbers within the blocks of GGUF files, little endian and not aligned.
namespace baton::cpu {

inline uint8_t U8(const std::byte* p, int64_t i) {
  return std::to_integer<uint8_t>(p[i]);
}
inline uint16_t U16(const std::byte* p) {
  return static_cast<uint16_t>(U8(p, 0) | U8(p, 1) << 8);
}
inline uint32_t U32(const std::byte* p) {
  return static_cast<uint32_t>(U16(p)) | static_cast<uint32_t>(U16(p + 2)) << 16;
}

}  // namespace baton::cpu
