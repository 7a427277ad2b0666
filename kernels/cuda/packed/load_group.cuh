#pragma once

#include <cstdint>

#include "kernels/cuda/packed/unpack.cuh"

namespace baton::cuda {

// Calls `call` with the template arguments for which kernels of the format are compiled, DType and
// ScaleType, and returns its result.
template <class Call>
auto WithTypesOf(const PackedFormat& format, const Call& call) {
  switch (format.number) {
    case DType::kU4:
      return call.template operator()<DType::kU4, ScaleType::kBF16>();
    case DType::kI8:
      return call.template operator()<DType::kI8, ScaleType::kBF16>();
    case DType::kFp8:
      return call.template operator()<DType::kFp8, ScaleType::kBF16>();
    default:
      return format.scale == ScaleType::kE8m0
                 ? call.template operator()<DType::kFp4, ScaleType::kE8m0>()
                 : call.template operator()<DType::kFp4, ScaleType::kFp8>();
  }
}

// What a lane needs of the group of input `input` of a chunk, in global or in shared memory, for
// its two outputs: those of pair `pair` (packed_format.h).
template <DType kNumber, ScaleType kScale>
__device__ __forceinline__ GroupOfLane
LoadGroup(const PackedLayout& layout, const unsigned char* chunk, int32_t input, int32_t pair) {
  GroupOfLane loaded = {};
  const int32_t group = input >> layout.group_shift;
  const unsigned char* const scales = chunk + group * layout.scale_bytes;
  if constexpr (kScale == ScaleType::kBF16) {
    SetMultipliers<kNumber, kScale>(reinterpret_cast<const uint32_t*>(scales)[pair], loaded);
  } else {
    SetMultipliers<kNumber, kScale>(reinterpret_cast<const uint16_t*>(scales)[pair], loaded);
  }
  if constexpr (kNumber == DType::kU4 || kNumber == DType::kI8) {
    uint32_t zeros = layout.zeros;
    if (layout.zero_bytes != 0) {
      const unsigned char* const from = chunk + layout.zeros_offset + group * layout.zero_bytes;
      zeros = kNumber == DType::kI8 ? reinterpret_cast<const uint16_t*>(from)[pair] : from[pair];
    }
    SetZeros<kNumber>(zeros, loaded);
  }
  return loaded;
}

// The words of a lane's numbers in tile `tile` of a chunk.
template <DType kNumber>
__device__ __forceinline__ void LoadWords(const PackedLayout& layout,
                                          const unsigned char* chunk,
                                          int32_t tile,
                                          uint32_t (&words)[4 * kWordsOfStep<kNumber>]) {
  constexpr int kVectors = kWordsOfStep<kNumber>;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto* const numbers =
      reinterpret_cast<const uint4*>(chunk + layout.numbers_offset + tile * layout.tile_bytes);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const uint4 four = numbers[(warp * kVectors + i) * 32 + lane];
    words[4 * i] = four.x;
    words[4 * i + 1] = four.y;
    words[4 * i + 2] = four.z;
    words[4 * i + 3] = four.w;
  }
}

// The words of step `step` among those of a tile.
template <DType kNumber>
__device__ __forceinline__ void UnpackStep(const uint32_t (&words)[4 * kWordsOfStep<kNumber>],
                                           int step,
                                           const GroupOfLane& group,
                                           uint32_t (&held)[4]) {
  constexpr int kWords = kWordsOfStep<kNumber>;
  uint32_t of_step[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) of_step[i] = words[step * kWords + i];
  Unpack<kNumber>(of_step, group, held);
}

// A lane needs a new group after at least this number of steps.
template <ScaleType kScale>
inline constexpr int kStepsOfGroup = kScale == ScaleType::kFp8 ? 1 : 2;

}  // namespace baton::cuda
