#include "kernels/cpu/block_formats.h"

#include <cstring>

#include "common/base/check.h"
#include "kernels/cpu/block_bytes.h"

// The formats of ggml: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h (layout) and
// ggml-quants.c (meaning).
namespace baton::cpu {
namespace {

using Values = int8_t (&)[kBlock];

// Reads 16 bytes: the low nibbles are values 0 … 15, the high nibbles values 16 … 31.
void ReadNibbles(const std::byte* from, Values values) {
  for (int i = 0; i < 16; ++i) {
    values[i] = static_cast<int8_t>(U8(from, i) & 15);
    values[i + 16] = static_cast<int8_t>(U8(from, i) >> 4);
  }
}

void AddFifthBits(uint32_t bits, Values values) {
  for (int i = 0; i < 32; ++i) {
    values[i] = static_cast<int8_t>(values[i] + (bits >> i & 1) * 16);
  }
}

// Reads sub-block j of 8: the low nibbles of 32 bytes when j is even, the high ones when j is odd.
void ReadSubNibbles(const std::byte* from, int64_t j, Values values) {
  for (int i = 0; i < 32; ++i) {
    const int byte = U8(from, j / 2 * 32 + i);
    values[i] = static_cast<int8_t>(j % 2 == 0 ? byte & 15 : byte >> 4);
  }
}

void ReadQ5K(const std::byte* super, int64_t j, Values values) {
  ReadSubNibbles(super + 48, j, values);
  for (int i = 0; i < 32; ++i) {
    values[i] = static_cast<int8_t>(values[i] + (U8(super, 16 + i) >> j & 1) * 16);
  }
}

void ReadQ6K(const std::byte* super, int64_t j, Values values) {
  // Two halves of 128 weights; in each, four runs of 32.
  const int64_t run = j % 4;
  const std::byte* low = super + j / 4 * 64 + run % 2 * 32;
  const std::byte* high = super + 128 + j / 4 * 32;
  for (int i = 0; i < 32; ++i) {
    const int bits = run < 2 ? U8(low, i) & 15 : U8(low, i) >> 4;
    values[i] = static_cast<int8_t>(bits | (U8(high, i) >> (2 * run) & 3) << 4);
  }
}

// The 2-bit values of sub-block j of 8.
void ReadPairs(const std::byte* from, int64_t j, Values values) {
  for (int i = 0; i < 32; ++i) {
    values[i] = static_cast<int8_t>(U8(from, j / 4 * 32 + i) >> (j % 4 * 2) & 3);
  }
}

void ReadQ3K(const std::byte* super, int64_t j, Values values) {
  ReadPairs(super + 32, j, values);
  for (int i = 0; i < 32; ++i) {
    values[i] = static_cast<int8_t>(values[i] + (U8(super, i) >> j & 1) * 4);
  }
}

}  // namespace

void ReadBlockValues(DType dtype, const std::byte* row, int64_t index, int8_t (&values)[kBlock]) {
  const BlockShape shape = ShapeOf(dtype);
  const auto blocks =
      static_cast<int64_t>(shape.elements) / kBlock;  // of 32 values, in one of ggml
  const std::byte* const from = row + index / blocks * static_cast<int64_t>(shape.bytes);
  const int64_t j = index % blocks;
  switch (dtype) {
    case DType::kQ8_0:
      std::memcpy(values, from + 2, kBlock);
      return;
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return ReadNibbles(from + 2, values);
    case DType::kQ4_1:
      return ReadNibbles(from + 4, values);
    case DType::kQ5_0:
      ReadNibbles(from + 6, values);
      return AddFifthBits(U32(from + 2), values);
    case DType::kQ5_1:
      ReadNibbles(from + 8, values);
      return AddFifthBits(U32(from + 4), values);
    case DType::kMxfp4:
      return ReadNibbles(from + 1, values);
    case DType::kQ2_K:
      return ReadPairs(from + 16, j, values);
    case DType::kQ3_K:
      return ReadQ3K(from, j, values);
    case DType::kQ4_K:
      return ReadSubNibbles(from + 16, j, values);
    case DType::kQ5_K:
      return ReadQ5K(from, j, values);
    case DType::kQ6_K:
      return ReadQ6K(from, j, values);
    case DType::kIQ4_XS:
      return ReadNibbles(from + 8 + j * 16, values);
    default:
      BATON_CHECK(false, "{} is not quantised", Name(dtype));
  }
}

}  // namespace baton::cpu
