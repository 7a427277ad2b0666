#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/primitives/rounding.h"
#include "kernels/dtype.h"
#include "kernels/tensor.h"

// The layout of quantised weights on the device. A packed matrix keeps the numbers of its file (4
// or 8 bits) and the scales of their groups, in the order in which tensor cores take them:
//
//   matrix   [tiles of 64 outputs][chunks of inputs], both rounded up
//   chunk    scales [groups][32 pairs] | zero points [groups][32 pairs] | numbers [tiles][bytes]
//   pair     of outputs 16 w + g and 16 w + g + 8 of the tile, at w · 8 + g; g < 8
//   tile     64 outputs × 64 inputs: the left operands of four WGMMAs of 64 × 16
//
// A chunk has kTileInputs inputs, or those of a group where these are more. A lane of warp w of a
// warp group loads its part of a tile as vectors of 16 bytes: one with numbers of 4 bits, two, for
// two WGMMAs each, with numbers of 8 bits.
namespace baton::cuda {

inline constexpr int32_t kTileOutputs = 64;
inline constexpr int32_t kTileInputs = 64;
// Factors of outputs contain this where scales are in FP8: the product of two such numbers and the
// powers of two that bring them to bf16 would exceed its range.
inline constexpr float kFp8ScaleFactor = 256;
inline constexpr int32_t kMaxGroupInputs = 128;  // longer groups are stored as several

// What a packed matrix has. A weight is scale · (number - zero point), rounded to bf16, with the
// scale of its group in bf16, E8M0 or FP8. Where outputs have factors (PackedWeights), the weights
// are these, times the factor of the output.
struct PackedFormat {
  DType number = DType::kBF16;         // kU4, kFp4, kI8 (as number + 128) or kFp8
  ScaleType scale = ScaleType::kBF16;  // kBF16; of kFp4 kE8m0 or kFp8
  // Inputs of a group: 32, 64 or 128, with scales in FP8 16; 0: not packed.
  int32_t group = 0;
  bool zeros = false;  // groups have zero points; if not, `zero` is that of all
  int32_t zero = 0;    // of kU4 and kI8 (as stored: 0 … 255)

  constexpr bool is_packed() const { return group != 0; }
  constexpr bool has_bytes() const { return number == DType::kI8 || number == DType::kFp8; }
  constexpr int32_t chunk_inputs() const { return group > kTileInputs ? group : kTileInputs; }
  constexpr int32_t groups_of_chunk() const { return chunk_inputs() / group; }
  constexpr int32_t tiles_of_chunk() const { return chunk_inputs() / kTileInputs; }
  // Bytes of the scales and the zero points of a group's 64 outputs.
  constexpr int32_t scale_bytes() const {
    return kTileOutputs * (scale == ScaleType::kBF16 ? 2 : 1);
  }
  constexpr int32_t zero_bytes() const {
    if (!zeros) return 0;
    return has_bytes() ? kTileOutputs : kTileOutputs / 2;
  }
  constexpr int32_t tile_bytes() const {
    return kTileOutputs * kTileInputs / (has_bytes() ? 1 : 2);
  }
  // From the start of a chunk on.
  constexpr int32_t zeros_offset() const { return groups_of_chunk() * scale_bytes(); }
  constexpr int32_t numbers_offset() const {
    return groups_of_chunk() * (scale_bytes() + zero_bytes());
  }
  constexpr int32_t chunk_bytes() const {
    return numbers_offset() + tiles_of_chunk() * tile_bytes();
  }
  constexpr int64_t chunks(int64_t cols) const { return CeilDiv(cols, chunk_inputs()); }
  constexpr int64_t tiles(int64_t rows) const { return CeilDiv(rows, kTileOutputs); }
  constexpr int64_t Bytes(int64_t rows, int64_t cols) const {
    return tiles(rows) * chunks(cols) * chunk_bytes();
  }
  bool operator==(const PackedFormat&) const = default;
};

// The numbers of a format that kernels use, computed once.
struct PackedLayout {
  int32_t group_shift = 0;  // inputs of a group = 1 << group_shift
  int32_t chunk_tiles = 0;
  int32_t chunk_bytes = 0;
  int32_t tile_bytes = 0;
  int32_t scale_bytes = 0;  // of a group's 64 outputs
  int32_t zero_bytes = 0;   // the same; 0: all groups have `zeros`
  int32_t zeros_offset = 0;
  int32_t numbers_offset = 0;
  uint32_t zeros = 0;  // a pair of zero points as it is stored
  bool operator==(const PackedLayout&) const = default;
};

inline PackedLayout LayoutOf(const PackedFormat& format) {
  const auto zero = static_cast<uint32_t>(format.zero);
  return {.group_shift = std::countr_zero(static_cast<uint32_t>(format.group)),
          .chunk_tiles = format.tiles_of_chunk(),
          .chunk_bytes = format.chunk_bytes(),
          .tile_bytes = format.tile_bytes(),
          .scale_bytes = format.scale_bytes(),
          .zero_bytes = format.zero_bytes(),
          .zeros_offset = format.zeros_offset(),
          .numbers_offset = format.numbers_offset(),
          .zeros = zero | zero << (format.has_bytes() ? 8 : 4)};
}

// A packed matrix [rows = outputs][cols = inputs] on the device. Does not own the memory.
struct PackedWeights {
  const std::byte* data = nullptr;
  PackedFormat format = {};
  int64_t rows = 0;
  int64_t cols = 0;
  const float* factors = nullptr;  // [rows]; null: 1
  bool operator==(const PackedWeights&) const = default;
};

// Where number (output, input) of a tile is: the 32-bit word from the start of the tile's numbers,
// and the first bit in it.
struct PackedPlace {
  int32_t word;
  int32_t bit;
};

// WGMMA's left operand of 64 × 16: a lane holds four registers of two neighbouring inputs each.
constexpr PackedPlace PlaceInTile(bool bytes, int32_t output, int32_t input) {
  const int32_t warp = output / 16;
  const int32_t lane = output % 8 * 4 + input % 8 / 2;
  const int32_t step = input / 16;
  const int32_t held = output / 8 % 2 + input / 8 % 2 * 2;  // the register
  const int32_t half = input % 2;
  if (!bytes) return {(warp * 32 + lane) * 4 + step, (held + 4 * half) * 4};
  const int32_t word = ((warp * 2 + step / 2) * 32 + lane) * 4 + step % 2 * 2 + held / 2;
  return {word, ((held % 2 == 0 ? 1 : 0) + 2 * half) * 8};
}

// The number at PlaceInTile {word, bit}.
struct TileNumber {
  int32_t output;
  int32_t input;
};
constexpr TileNumber NumberAt(bool bytes, int32_t word, int32_t bit) {
  const int32_t lane = word / 4 % 32;
  const int32_t warp = word / (bytes ? 256 : 128);
  const int32_t step = bytes ? word / 128 % 2 * 2 + word / 2 % 2 : word % 4;
  const int32_t held = bytes ? word % 2 * 2 + (bit / 8 % 2 == 0 ? 1 : 0) : bit / 4 % 4;
  const int32_t half = bit / 16;
  return {warp * 16 + held % 2 * 8 + lane / 4, step * 16 + held / 2 * 8 + lane % 4 * 2 + half};
}

// The bits of a word of FP4 numbers in the order in which they are stored, so that few instructions
// bring a pair of numbers to bf16 (Unpack): of numbers i and i + 4 of the word, sign, exponent and
// mantissa are 15 - 3 i, 8 - 3 i, 7 - 3 i and 6 - 3 i bits from the start of a half of the word for
// i < 3; for i = 3, they are in the bits 14, 13, 11 and 10 that are left.
constexpr uint32_t ArrangeFp4(uint32_t word) {
  uint32_t arranged = 0;
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 4; ++i) {
      const uint32_t number = word >> (16 * half + 4 * i) & 15;
      const uint32_t bits = i < 3
                                ? (number >> 3 << 15 | (number & 7) << 6) >> (3 * i)
                                : number >> 3 << 14 | (number >> 2 & 1) << 13 | (number & 3) << 10;
      arranged |= bits << (16 * half);
    }
  }
  return arranged;
}

// The place of an output in the scales and the zero points of a group: which of the 32 pairs, and
// which of the two.
constexpr int32_t PairOf(int32_t output) {
  return output / 16 * 8 + output % 8;
}
constexpr int32_t HalfOfPair(int32_t output) {
  return output / 8 % 2;
}

}  // namespace baton::cuda
