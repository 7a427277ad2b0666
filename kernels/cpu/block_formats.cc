#include "kernels/cpu/block_formats.h"

#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "kernels/cpu/half.h"
#include "kernels/value_tables.h"

// The formats of ggml: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h (layout) and
// ggml-quants.c (meaning).
namespace baton::cpu {
namespace {

uint8_t U8(const std::byte* p, int64_t i) {
  return std::to_integer<uint8_t>(p[i]);
}
uint16_t U16(const std::byte* p) {
  return static_cast<uint16_t>(U8(p, 0) | U8(p, 1) << 8);
}
uint32_t U32(const std::byte* p) {
  return static_cast<uint32_t>(U16(p)) | static_cast<uint32_t>(U16(p + 2)) << 16;
}

// Reads 16 bytes: the low nibbles are values 0 … 15, the high nibbles values 16 … 31.
void ReadNibbles(const std::byte* from, WeightBlock& block) {
  for (int i = 0; i < 16; ++i) {
    block.values[i] = static_cast<int8_t>(U8(from, i) & 15);
    block.values[i + 16] = static_cast<int8_t>(U8(from, i) >> 4);
  }
}

void AddFifthBits(uint32_t bits, int offset, WeightBlock& block) {
  for (int i = 0; i < 32; ++i) {
    block.values[i] = static_cast<int8_t>(block.values[i] + (bits >> i & 1) * 16 - offset);
  }
}

// The 6-bit scale and minimum of sub-block `j` of a Q4_K or Q5_K block.
void ReadScales(const std::byte* packed, int64_t j, WeightBlock& block, const std::byte* header) {
  int scale = 0;
  int minimum = 0;
  if (j < 4) {
    scale = U8(packed, j) & 63;
    minimum = U8(packed, j + 4) & 63;
  } else {
    scale = (U8(packed, j + 4) & 15) | U8(packed, j - 4) >> 6 << 4;
    minimum = U8(packed, j + 4) >> 4 | U8(packed, j) >> 6 << 4;
  }
  block.scale[0] = block.scale[1] = FloatFromHalf(U16(header)) * static_cast<float>(scale);
  block.minimum = -FloatFromHalf(U16(header + 2)) * static_cast<float>(minimum);
}

// Reads sub-block j of 8: the low nibbles of 32 bytes when j is even, the high ones when j is odd.
void ReadSubNibbles(const std::byte* from, int64_t j, WeightBlock& block) {
  for (int i = 0; i < 32; ++i) {
    const int byte = U8(from, j / 2 * 32 + i);
    block.values[i] = static_cast<int8_t>(j % 2 == 0 ? byte & 15 : byte >> 4);
  }
}

// Replaces each value, an index, by the number in the table.
void LookUp(const int8_t (&table)[16], WeightBlock& block) {
  for (int8_t& value : block.values) value = table[value];
}

// The 6-bit scale of 16 numbers of a Q3_K block, less 32.
int ScaleOfQ3K(const std::byte* packed, int64_t i) {
  const int low = U8(packed, i % 8) >> (i / 8 * 4) & 15;
  const int high = U8(packed, 8 + i % 4) >> (i / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

WeightBlock ReadQ4K(const std::byte* super, int64_t j) {
  WeightBlock block;
  ReadScales(super + 4, j, block, super);
  ReadSubNibbles(super + 16, j, block);
  return block;
}

WeightBlock ReadQ5K(const std::byte* super, int64_t j) {
  WeightBlock block;
  ReadScales(super + 4, j, block, super);
  ReadSubNibbles(super + 48, j, block);
  for (int i = 0; i < 32; ++i) {
    const int bit = U8(super, 16 + i) >> j & 1;
    block.values[i] = static_cast<int8_t>(block.values[i] + bit * 16);
  }
  return block;
}

WeightBlock ReadQ6K(const std::byte* super, int64_t j) {
  // Two halves of 128 weights; in each, four runs of 32.
  const int64_t half = j / 4;
  const int64_t run = j % 4;
  const std::byte* low = super + half * 64 + run % 2 * 32;
  const std::byte* high = super + 128 + half * 32;
  const std::byte* scales = super + 192 + half * 8 + run * 2;
  const float d = FloatFromHalf(U16(super + 208));
  WeightBlock block;
  for (int i = 0; i < 32; ++i) {
    const int bits = run < 2 ? U8(low, i) & 15 : U8(low, i) >> 4;
    const int top = U8(high, i) >> (2 * run) & 3;
    block.values[i] = static_cast<int8_t>((bits | top << 4) - 32);
  }
  for (int i = 0; i < 2; ++i) {
    block.scale[i] = d * static_cast<float>(static_cast<int8_t>(U8(scales, i)));
  }
  return block;
}

WeightBlock ReadQ3K(const std::byte* super, int64_t j) {
  const std::byte* low = super + 32 + j / 4 * 32;
  WeightBlock block;
  for (int i = 0; i < 32; ++i) {
    const int third = U8(super, i) >> j & 1;
    block.values[i] = static_cast<int8_t>((U8(low, i) >> (j % 4 * 2) & 3) + 4 * third - 4);
  }
  const float d = FloatFromHalf(U16(super + 108));
  for (int64_t i = 0; i < 2; ++i) {
    block.scale[i] = d * static_cast<float>(ScaleOfQ3K(super + 96, 2 * j + i));
  }
  return block;
}

WeightBlock ReadIQ4NL(const std::byte* from) {
  WeightBlock block;
  block.half_scale = U16(from);
  block.scale[0] = block.scale[1] = FloatFromHalf(block.half_scale);
  ReadNibbles(from + 2, block);
  LookUp(kIQ4Values, block);
  return block;
}

WeightBlock ReadIQ4XS(const std::byte* super, int64_t j) {
  const int low = U8(super, 4 + j / 2) >> (j % 2 * 4) & 15;
  const int high = U16(super + 2) >> (2 * j) & 3;
  WeightBlock block;
  block.scale[0] = block.scale[1] =
      FloatFromHalf(U16(super)) * static_cast<float>((low | high << 4) - 32);
  ReadNibbles(super + 8 + j * 16, block);
  LookUp(kIQ4Values, block);
  return block;
}

WeightBlock ReadMxfp4(const std::byte* from) {
  WeightBlock block;
  block.scale[0] = block.scale[1] = std::ldexp(1.0f, U8(from, 0) - 128);
  ReadNibbles(from + 1, block);
  LookUp(kTwiceFp4, block);
  return block;
}

WeightBlock ReadSimple(DType dtype, const std::byte* from) {
  const bool has_min = dtype == DType::kQ4_1 || dtype == DType::kQ5_1;
  WeightBlock block;
  block.half_scale = U16(from);
  block.scale[0] = block.scale[1] = FloatFromHalf(block.half_scale);
  from += 2;
  if (has_min) {
    block.half_minimum = U16(from);
    block.minimum = FloatFromHalf(block.half_minimum);
    from += 2;
  }
  if (dtype == DType::kQ8_0) {
    std::memcpy(block.values, from, kBlock);
    return block;
  }
  if (dtype == DType::kQ4_0 || dtype == DType::kQ4_1) {
    ReadNibbles(from, block);
    return block;
  }
  ReadNibbles(from + 4, block);
  AddFifthBits(U32(from), has_min ? 0 : 16, block);
  return block;
}

}  // namespace

PanelView PanelFormat(DType dtype) {
  PanelView view;
  view.kind = PanelKind::kByte;
  switch (dtype) {
    case DType::kQ8_0:
    case DType::kQ5_0:
    case DType::kIQ4_NL:
      break;
    case DType::kQ4_0:
      view.kind = PanelKind::kNibble;
      view.zero_point = 8;
      break;
    case DType::kQ4_1:
      view.kind = PanelKind::kNibble;
      view.has_min = true;
      break;
    case DType::kQ5_1:
      view.has_min = true;
      break;
    case DType::kQ4_K:
      view.kind = PanelKind::kNibble;
      view.has_min = view.wide_scales = true;
      break;
    case DType::kQ5_K:
      view.has_min = view.wide_scales = true;
      break;
    case DType::kQ3_K:
    case DType::kQ6_K:
      view.half_groups = view.wide_scales = true;
      break;
    case DType::kIQ4_XS:
    case DType::kMxfp4:
      view.wide_scales = true;
      break;
    default:
      BATON_CHECK(false, "{} is not quantised", Name(dtype));
  }
  return view;
}

WeightBlock ReadBlock(DType dtype, const std::byte* row, int64_t index) {
  const auto bytes = static_cast<int64_t>(ShapeOf(dtype).bytes);
  switch (dtype) {
    case DType::kQ4_K:
      return ReadQ4K(row + index / 8 * bytes, index % 8);
    case DType::kQ5_K:
      return ReadQ5K(row + index / 8 * bytes, index % 8);
    case DType::kQ6_K:
      return ReadQ6K(row + index / 8 * bytes, index % 8);
    case DType::kQ3_K:
      return ReadQ3K(row + index / 8 * bytes, index % 8);
    case DType::kIQ4_XS:
      return ReadIQ4XS(row + index / 8 * bytes, index % 8);
    case DType::kIQ4_NL:
      return ReadIQ4NL(row + index * bytes);
    case DType::kMxfp4:
      return ReadMxfp4(row + index * bytes);
    default:
      return ReadSimple(dtype, row + index * bytes);
  }
}

}  // namespace baton::cpu
