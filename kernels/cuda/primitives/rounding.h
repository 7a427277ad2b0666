#pragma once

#include <cstdint>
#include <type_traits>

// Division that rounds up, of what is not negative, on the host and in kernels.
namespace baton::cuda {

// How many parts of `part` it takes to have `whole`.
template <class T>
constexpr int32_t CeilDiv(T whole, std::type_identity_t<T> part) {
  return static_cast<int32_t>((whole + part - 1) / part);
}

// The least multiple of `unit` that is not below `value`.
constexpr int32_t RoundUp(int32_t value, int32_t unit) {
  return CeilDiv(value, unit) * unit;
}

}  // namespace baton::cuda
