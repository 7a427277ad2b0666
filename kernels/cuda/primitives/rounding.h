#pragma once

#include <cstdint>
#include <type_traits>

// Division of non-negative numbers that rounds up, for the host and for kernels.
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

}  // namespace baton::cuda
