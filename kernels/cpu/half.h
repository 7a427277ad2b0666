#pragma once

#include <cstdint>
#include <cstring>

namespace baton::cpu {

// Conversions of 16-bit floats with the results of the hardware: round to nearest even, subnormals
// kept, NaN made quiet. Only for files that are compiled for the baseline instruction set.
inline float FloatFromBits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
inline uint32_t BitsOfFloat(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

// IEEE 754 binary16.
inline float FloatFromHalf(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t rest = h & 0x7fff;
  if (rest > 0x7c00) return FloatFromBits(sign | 0x7fc00000 | (rest & 0x3ff) << 13);
  if (rest == 0x7c00) return FloatFromBits(sign | 0x7f800000);
  if (rest >= 0x0400) return FloatFromBits(sign | ((rest << 13) + 0x38000000));
  const float tiny = static_cast<float>(rest) * 5.9604644775390625e-8f;  // 2⁻²⁴
  return FloatFromBits(sign | BitsOfFloat(tiny));
}
inline uint16_t HalfFromFloat(float x) {
  const uint32_t bits = BitsOfFloat(x);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | (rest >> 13 & 0x3ff));
  if (rest >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (rest < 0x38800000) {
    // Adding 0.5 leaves the value in units of 2⁻²⁴ in the low mantissa bits, rounded to even.
    return static_cast<uint16_t>(sign | (BitsOfFloat(FloatFromBits(rest) + 0.5f) - 0x3f000000));
  }
  const uint32_t odd = rest >> 13 & 1;
  return static_cast<uint16_t>(sign | (rest - 0x38000000 + 0xfff + odd) >> 13);
}

// bfloat16: the upper half of a float.
inline float FloatFromBf16(uint16_t h) {
  return FloatFromBits(static_cast<uint32_t>(h) << 16);
}
inline uint16_t Bf16FromFloat(float x) {
  const uint32_t bits = BitsOfFloat(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace baton::cpu
