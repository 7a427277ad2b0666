#pragma once

#include <cstdint>

#include "kernels/cuda/packed/unpack.cuh"

namespace baton::cuda {

// What a lane needs of group `group` of a chunk, in global or in shared memory, for its two
// outputs: those of pair `pair` (packed_format.h).
template <DType kNumber, ScaleType kScale>
__device__ __forceinline__ GroupOfLane
LoadGroup(const PackedFormat& format, const void* chunk, int32_t group, int32_t pair) {
  GroupOfLane loaded = {};
  const auto* const bytes = static_cast<const unsigned char*>(chunk);
  const unsigned char* const scales = bytes + group * format.scale_bytes();
  if constexpr (kScale == ScaleType::kBF16) {
    SetMultipliers<kNumber, kScale>(reinterpret_cast<const uint32_t*>(scales)[pair], loaded);
  } else {
    SetMultipliers<kNumber, kScale>(reinterpret_cast<const uint16_t*>(scales)[pair], loaded);
  }
  if constexpr (kNumber == DType::kU4 || kNumber == DType::kI8) {
    constexpr bool kBytes = kNumber == DType::kI8;
    auto zero = static_cast<uint32_t>(format.zero);
    zero |= zero << (kBytes ? 8 : 4);
    if (format.zeros) {
      const unsigned char* const zeros =
          bytes + format.zeros_offset() + group * format.zero_bytes();
      zero = kBytes ? reinterpret_cast<const uint16_t*>(zeros)[pair] : zeros[pair];
    }
    SetZeros<kNumber>(zero, loaded);
  }
  return loaded;
}

}  // namespace baton::cuda
