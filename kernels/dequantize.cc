#include "kernels/dequantize.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "kernels/uniform_weight.h"
#include "kernels/value_tables.h"

namespace baton {
namespace {

// Block formats: ggml, src/ggml-common.h and src/ggml-quants.c. Each function expands one block.

constexpr size_t kSmallBlock = 32;

uint8_t Byte(const std::byte* p, size_t i) {
  return std::to_integer<uint8_t>(p[i]);
}

template <class T>
T Load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

float Half(const std::byte* p) {
  return HalfToFloat(Load<uint16_t>(p));
}

// d, 32 × int8.
void ExpandQ8_0(const std::byte* block, float* out) {
  const float d = Half(block);
  for (size_t i = 0; i < kSmallBlock; ++i) {
    out[i] = static_cast<float>(static_cast<int8_t>(Byte(block, 2 + i))) * d;
  }
}

// d, 16 bytes of two 4-bit numbers; number i and i + 16 share a byte.
void ExpandQ4_0(const std::byte* block, float* out) {
  const float d = Half(block);
  for (size_t i = 0; i < kSmallBlock / 2; ++i) {
    const uint8_t q = Byte(block, 2 + i);
    out[i] = static_cast<float>((q & 15) - 8) * d;
    out[i + 16] = static_cast<float>((q >> 4) - 8) * d;
  }
}

// d, m, 16 bytes.
void ExpandQ4_1(const std::byte* block, float* out) {
  const float d = Half(block);
  const float m = Half(block + 2);
  for (size_t i = 0; i < kSmallBlock / 2; ++i) {
    const uint8_t q = Byte(block, 4 + i);
    out[i] = static_cast<float>(q & 15) * d + m;
    out[i + 16] = static_cast<float>(q >> 4) * d + m;
  }
}

// The fifth bits of 32 numbers lie in one 32-bit word: number i's is bit i.
int FifthBit(uint32_t high, size_t i) {
  return static_cast<int>(high >> i & 1) << 4;
}

// d, 32 high bits, 16 bytes.
void ExpandQ5_0(const std::byte* block, float* out) {
  const float d = Half(block);
  const auto high = Load<uint32_t>(block + 2);
  for (size_t i = 0; i < kSmallBlock / 2; ++i) {
    const uint8_t q = Byte(block, 6 + i);
    out[i] = static_cast<float>(((q & 15) | FifthBit(high, i)) - 16) * d;
    out[i + 16] = static_cast<float>(((q >> 4) | FifthBit(high, i + 16)) - 16) * d;
  }
}

// d, m, 32 high bits, 16 bytes.
void ExpandQ5_1(const std::byte* block, float* out) {
  const float d = Half(block);
  const float m = Half(block + 2);
  const auto high = Load<uint32_t>(block + 4);
  for (size_t i = 0; i < kSmallBlock / 2; ++i) {
    const uint8_t q = Byte(block, 8 + i);
    out[i] = static_cast<float>((q & 15) | FifthBit(high, i)) * d + m;
    out[i + 16] = static_cast<float>((q >> 4) | FifthBit(high, i + 16)) * d + m;
  }
}

struct ScaleAndMin {
  float scale = 0;
  float min = 0;
};

// The 6-bit scale and minimum of sub-block j of a Q4_K or Q5_K block: 12 bytes hold eight of each.
ScaleAndMin SixBitPair(const std::byte* packed, size_t j) {
  if (j < 4) {
    return {static_cast<float>(Byte(packed, j) & 63), static_cast<float>(Byte(packed, j + 4) & 63)};
  }
  const uint8_t low = Byte(packed, j + 4);
  return {static_cast<float>((low & 15) | (Byte(packed, j - 4) >> 6) << 4),
          static_cast<float>((low >> 4) | (Byte(packed, j) >> 6) << 4)};
}

// What Q4_K and Q5_K share: d, dmin, 12 bytes of scales, and 128 bytes `quants` of low bits, of
// which 64 numbers share 32 bytes, low halves first. `high(j, i)` is what bits beyond the fourth
// add to number i of sub-block j.
template <class High>
void ExpandSubBlocks(const std::byte* block,
                     const std::byte* quants,
                     const High& high,
                     float* out) {
  const float d = Half(block);
  const float dmin = Half(block + 2);
  for (size_t j = 0; j < 8; ++j) {
    const ScaleAndMin pair = SixBitPair(block + 4, j);
    const float scale = d * pair.scale;
    const float min = dmin * pair.min;
    for (size_t i = 0; i < 32; ++i) {
      const uint8_t q = Byte(quants, j / 2 * 32 + i);
      const int low = j % 2 == 0 ? q & 15 : q >> 4;
      out[j * 32 + i] = scale * static_cast<float>(low | high(j, i)) - min;
    }
  }
}

void ExpandQ4_K(const std::byte* block, float* out) {
  ExpandSubBlocks(
      block, block + 16, [](size_t, size_t) { return 0; }, out);
}

// 32 bytes of fifth bits before the quants: bit j of byte i for number i of sub-block j.
void ExpandQ5_K(const std::byte* block, float* out) {
  const auto fifth = [bits = block + 16](size_t j, size_t i) {
    return (Byte(bits, i) >> j & 1) << 4;
  };
  ExpandSubBlocks(block, block + 48, fifth, out);
}

// 128 bytes of low 4 bits, 64 of high 2 bits, 16 int8 scales, d. In each half of 128 numbers, byte
// pair (i, i + 32) of the low bits and byte i of the high bits serve numbers i, i + 32, i + 64 and
// i + 96.
void ExpandQ6_K(const std::byte* block, float* out) {
  const float d = Half(block + 208);
  for (size_t half = 0; half < 2; ++half) {
    const std::byte* low = block + half * 64;
    const std::byte* high = block + 128 + half * 32;
    const std::byte* scales = block + 192 + half * 8;
    for (size_t n = 0; n < 128; ++n) {
      const size_t quarter = n / 32;
      const size_t i = n % 32;
      const uint8_t byte = Byte(low, i + (quarter % 2) * 32);
      const int q = (quarter < 2 ? byte & 15 : byte >> 4) | (Byte(high, i) >> (2 * quarter) & 3)
                                                                << 4;
      const auto scale = static_cast<int8_t>(Byte(scales, n / 16));
      out[half * 128 + n] = d * static_cast<float>(scale) * static_cast<float>(q - 32);
    }
  }
}

// 16 bytes of two indices each into `values`; number i and i + 16 share a byte.
void ExpandIndices(const std::byte* indices, float scale, const int8_t (&values)[16], float* out) {
  for (size_t i = 0; i < kSmallBlock / 2; ++i) {
    const uint8_t both = Byte(indices, i);
    out[i] = scale * static_cast<float>(values[both & 15]);
    out[i + 16] = scale * static_cast<float>(values[both >> 4]);
  }
}

// d, 16 bytes of indices.
void ExpandIQ4_NL(const std::byte* block, float* out) {
  ExpandIndices(block + 2, Half(block), kIQ4Values, out);
}

// d, 8 high pairs of bits and then 8 low nibbles of the scales, 128 bytes of indices.
void ExpandIQ4_XS(const std::byte* block, float* out) {
  const float d = Half(block);
  const auto high = Load<uint16_t>(block + 2);
  for (size_t j = 0; j < 8; ++j) {
    const int low = Byte(block, 4 + j / 2) >> (j % 2 * 4) & 15;
    const int scale = (low | (high >> (2 * j) & 3) << 4) - 32;
    ExpandIndices(block + 8 + j * 16, d * static_cast<float>(scale), kIQ4Values, out + j * 32);
  }
}

// An exponent, 16 bytes of indices of FP4 numbers. The scale is half of 2^(exponent − 127), as the
// values are twice the numbers; as in ggml, 255 is no NaN here.
void ExpandMxfp4(const std::byte* block, float* out) {
  const uint32_t exponent = Byte(block, 0);
  const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
  ExpandIndices(block + 1, std::bit_cast<float>(bits), kTwiceFp4, out);
}

// 16 bytes of a 4-bit scale and minimum, 64 bytes of 2-bit numbers, d, dmin. In each half of 128
// numbers, numbers i, i + 32, i + 64 and i + 96 share a byte.
void ExpandQ2_K(const std::byte* block, float* out) {
  const float d = Half(block + 80);
  const float dmin = Half(block + 82);
  for (size_t n = 0; n < 256; ++n) {
    const uint8_t pair = Byte(block, n / 16);
    const int q = Byte(block, 16 + n / 128 * 32 + n % 32) >> (n % 128 / 32 * 2) & 3;
    const float scale = d * static_cast<float>(pair & 15);
    out[n] = scale * static_cast<float>(q) - dmin * static_cast<float>(pair >> 4);
  }
}

// The 6-bit scale of 16 numbers of a Q3_K block, less 32: 8 bytes have the low nibbles of the first
// eight and the last eight, 4 bytes the high bits of scales i, i + 4, i + 8 and i + 12.
int ScaleOfQ3_K(const std::byte* packed, size_t i) {
  const int low = Byte(packed, i % 8) >> (i / 8 * 4) & 15;
  const int high = Byte(packed, 8 + i % 4) >> (i / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

// 32 bytes of third bits, 64 bytes of low 2 bits as in Q2_K, 12 bytes of scales, d. Bit j of byte i
// is that of number 32 · j + i, without which it is 4 less.
void ExpandQ3_K(const std::byte* block, float* out) {
  const float d = Half(block + 108);
  for (size_t n = 0; n < 256; ++n) {
    const int low = Byte(block, 32 + n / 128 * 32 + n % 32) >> (n % 128 / 32 * 2) & 3;
    const int third = Byte(block, n % 32) >> (n / 32) & 1;
    const float scale = d * static_cast<float>(ScaleOfQ3_K(block + 96, n / 16));
    out[n] = scale * static_cast<float>(low + 4 * third - 4);
  }
}

void ExpandF32(const std::byte* from, float* out) {
  *out = Load<float>(from);
}
void ExpandF16(const std::byte* from, float* out) {
  *out = Half(from);
}
void ExpandBF16(const std::byte* from, float* out) {
  *out = BrainToFloat(Load<uint16_t>(from));
}

// E4M3: sign, 4 bits of exponent over 7, 3 bits behind the point; no infinities.
float FloatOfFp8(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const int fraction = bits & 7;
  float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                             : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  if (exponent == 15 && fraction == 7) size = std::numeric_limits<float>::quiet_NaN();
  return bits >> 7 == 0 ? size : -size;
}

std::array<float, 256> TableOfFp8() {
  std::array<float, 256> table{};
  for (size_t bits = 0; bits < table.size(); ++bits) {
    table[bits] = FloatOfFp8(static_cast<uint8_t>(bits));
  }
  return table;
}

void ExpandFp8(const std::byte* from, float* out) {
  static const std::array<float, 256> table = TableOfFp8();
  *out = table[Byte(from, 0)];
}

void ExpandU4(const std::byte* from, float* out) {
  out[0] = static_cast<float>(Byte(from, 0) & 15);
  out[1] = static_cast<float>(Byte(from, 0) >> 4);
}

void ExpandI8(const std::byte* from, float* out) {
  *out = static_cast<float>(static_cast<int8_t>(Byte(from, 0)));
}

void ExpandFp4(const std::byte* from, float* out) {
  constexpr float kValues[16] = {
      0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  out[0] = kValues[Byte(from, 0) & 15];
  out[1] = kValues[Byte(from, 0) >> 4];
}

using Expand = void (*)(const std::byte*, float*);

Expand ExpandOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ExpandF32;
    case DType::kF16:
      return ExpandF16;
    case DType::kBF16:
      return ExpandBF16;
    case DType::kQ8_0:
      return ExpandQ8_0;
    case DType::kQ4_0:
      return ExpandQ4_0;
    case DType::kQ4_1:
      return ExpandQ4_1;
    case DType::kQ5_0:
      return ExpandQ5_0;
    case DType::kQ5_1:
      return ExpandQ5_1;
    case DType::kQ4_K:
      return ExpandQ4_K;
    case DType::kQ5_K:
      return ExpandQ5_K;
    case DType::kQ6_K:
      return ExpandQ6_K;
    case DType::kFp8:
      return ExpandFp8;
    case DType::kU4:
      return ExpandU4;
    case DType::kI8:
      return ExpandI8;
    case DType::kFp4:
      return ExpandFp4;
    case DType::kIQ4_NL:
      return ExpandIQ4_NL;
    case DType::kIQ4_XS:
      return ExpandIQ4_XS;
    case DType::kQ2_K:
      return ExpandQ2_K;
    case DType::kQ3_K:
      return ExpandQ3_K;
    case DType::kMxfp4:
      return ExpandMxfp4;
  }
  BATON_CHECK(false, "dtype {}", static_cast<int>(dtype));
}

}  // namespace

float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = half >> 10 & 31u;
  const uint32_t mantissa = half & 1023u;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign == 0 ? magnitude : -magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

float BrainToFloat(uint16_t brain) {
  return std::bit_cast<float>(static_cast<uint32_t>(brain) << 16);
}

uint16_t FloatToBrain(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

void Dequantize(DType dtype, std::span<const std::byte> from, std::span<float> out) {
  const BlockShape block = ShapeOf(dtype);
  BATON_CHECK(out.size() % block.elements == 0 && from.size() == RowBytes(dtype, out.size()),
              "{} numbers of {} in {} bytes",
              out.size(),
              Name(dtype),
              from.size());
  const Expand expand = ExpandOf(dtype);
  for (size_t i = 0; i < out.size() / block.elements; ++i) {
    expand(from.data() + i * block.bytes, out.data() + i * block.elements);
  }
}

uint8_t FloatToFp8(float value) {
  constexpr float kLargest = 448;
  const float magnitude = std::min(std::fabs(value), kLargest);
  const int sign = std::signbit(value) ? 0x80 : 0;
  if (magnitude == 0) return static_cast<uint8_t>(sign);
  // Exponents begin at −6; numbers below 2^−6 have the steps of those above it.
  int exponent = std::max(std::ilogb(magnitude), -6);
  auto mantissa = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));
  if (mantissa == 16) {
    mantissa = 8;
    ++exponent;
  }
  const int bits = mantissa < 8 ? mantissa : ((exponent + 7) << 3) + mantissa - 8;
  return static_cast<uint8_t>(sign | bits);
}

void DequantizeRow(const HostMatrix& matrix, int64_t row, std::span<float> out) {
  BATON_CHECK(std::cmp_equal(out.size(), matrix.cols),
              "{} numbers for a row of {}",
              out.size(),
              matrix.cols);
  Dequantize(matrix.dtype, {matrix.Row(row), RowBytes(matrix.dtype, out.size())}, out);
  if (!matrix.has_groups()) return;
  const WeightGroups& groups = matrix.groups;
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t group = groups.IndexOf(row, static_cast<int64_t>(i));
    out[i] = groups.scales[group] * (out[i] - groups.ZeroOf(group));
  }
}

void DrawMatrix(const HostMatrix& matrix, std::span<uint16_t> out) {
  BATON_CHECK(std::cmp_equal(out.size(), matrix.rows * matrix.cols),
              "{} numbers for a matrix of {}×{}",
              out.size(),
              matrix.rows,
              matrix.cols);
  size_t next = 0;
  for (int64_t row = 0; row < matrix.rows; ++row) {
    const uint64_t first = matrix.StreamIndex(row);
    for (int64_t col = 0; col < matrix.cols; ++col) {
      const uint64_t index = first + static_cast<uint64_t>(col);
      out[next++] = FloatToBrain(matrix.scale * UniformWeight(matrix.stream, index));
    }
  }
}

}  // namespace baton
