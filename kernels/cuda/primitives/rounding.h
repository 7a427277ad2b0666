#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

// Rounding up of non-negative numbers, for the host and for kernels.
namespace baton::cuda {

// ⌈whole / part⌉.
template <class T>
constexpr int32_t CeilDiv(T whole, std::type_identity_t<T> part) {
  return static_cast<int32_t>((whole + part - 1) / part);
}

// The smallest multiple of `unit` that is at least `value`.
constexpr int32_t RoundUp(int32_t value, int32_t unit) {
  return CeilDiv(value, unit) * unit;
}

// The smallest power of two that is at least `value`, and at least 1.
constexpr int32_t PowerOfTwo(int32_t value) {
  return value <= 1 ? 1 : static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(value)));
}

}  // namespace baton::cuda
