#include "tests/parity/host_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace baton::parity {
namespace {

using Bytes = std::vector<uint8_t>;

float ReadHalf(const Bytes& block, size_t at) {
  return HalfToFloat(static_cast<uint16_t>(block[at] | block[at + 1] << 8));
}

// Each function below returns weight `i` of one block by the formulas of
// https://github.com/ggml-org/ggml (ggml-quants.c).
float Q8_0(const Bytes& b, size_t i) {
  return ReadHalf(b, 0) * static_cast<float>(static_cast<int8_t>(b[2 + i]));
}

int Nibble(const Bytes& b, size_t first, size_t i) {
  return i < 16 ? b[first + i] % 16 : b[first + i - 16] / 16;
}

int FifthBit(const Bytes& b, size_t first, size_t i) {
  return b[first + i / 8] >> (i % 8) & 1;
}

float Q4_0(const Bytes& b, size_t i) {
  return ReadHalf(b, 0) * static_cast<float>(Nibble(b, 2, i) - 8);
}

float Q4_1(const Bytes& b, size_t i) {
  return ReadHalf(b, 0) * static_cast<float>(Nibble(b, 4, i)) + ReadHalf(b, 2);
}

float Q5_0(const Bytes& b, size_t i) {
  return ReadHalf(b, 0) * static_cast<float>(Nibble(b, 6, i) + 16 * FifthBit(b, 2, i) - 16);
}

float Q5_1(const Bytes& b, size_t i) {
  const int q = Nibble(b, 8, i) + 16 * FifthBit(b, 4, i);
  return ReadHalf(b, 0) * static_cast<float>(q) + ReadHalf(b, 2);
}

// The 12 bytes from `first` on contain eight 6-bit scales and eight 6-bit minima.
int KScale(const Bytes& b, size_t first, size_t sub, bool minimum) {
  const size_t low = first + sub % 4 + (minimum ? 4 : 0);
  if (sub < 4) return b[low] % 64;
  const int four = minimum ? b[first + 8 + sub - 4] / 16 : b[first + 8 + sub - 4] % 16;
  return four + b[low] / 64 * 16;
}

float Q45K(const Bytes& b, size_t i, bool five) {
  const size_t sub = i / 32;
  const uint8_t byte = b[(five ? 48 : 16) + sub / 2 * 32 + i % 32];
  int q = sub % 2 == 0 ? byte % 16 : byte / 16;
  if (five) q += (b[16 + i % 32] >> sub & 1) * 16;
  const float d = ReadHalf(b, 0) * static_cast<float>(KScale(b, 4, sub, false));
  const float m = ReadHalf(b, 2) * static_cast<float>(KScale(b, 4, sub, true));
  return d * static_cast<float>(q) - m;
}

float Q6_K(const Bytes& b, size_t i) {
  const size_t half = i / 128;
  const size_t run = i % 128 / 32;
  const size_t l = i % 32;
  const uint8_t low = b[half * 64 + run % 2 * 32 + l];
  const int four = run < 2 ? low % 16 : low / 16;
  const int two = b[128 + half * 32 + l] >> (2 * run) & 3;
  const auto scale = static_cast<int8_t>(b[192 + i / 16]);
  return ReadHalf(b, 208) * static_cast<float>(scale) * static_cast<float>(four + 16 * two - 32);
}

float BlockValue(DType dtype, const Bytes& block, size_t i) {
  switch (dtype) {
    case DType::kQ8_0:
      return Q8_0(block, i);
    case DType::kQ4_0:
      return Q4_0(block, i);
    case DType::kQ4_1:
      return Q4_1(block, i);
    case DType::kQ5_0:
      return Q5_0(block, i);
    case DType::kQ5_1:
      return Q5_1(block, i);
    case DType::kQ4_K:
      return Q45K(block, i, false);
    case DType::kQ5_K:
      return Q45K(block, i, true);
    default:
      return Q6_K(block, i);
  }
}

// The byte offsets of the half-precision factors of a block.
std::vector<size_t> HalfOffsets(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ6_K:
      return {208};
    default:
      return {0};
  }
}

void PutHalf(Bytes& block, size_t at, float value) {
  const uint16_t half = FloatToHalf(value);
  block[at] = static_cast<uint8_t>(half & 255);
  block[at + 1] = static_cast<uint8_t>(half >> 8);
}

void Append(std::vector<std::byte>& to, const void* from, size_t count) {
  const auto* bytes = static_cast<const std::byte*>(from);
  to.insert(to.end(), bytes, bytes + count);
}

void AddPlain(DType dtype, float value, HostWeights& weights) {
  if (dtype == DType::kF32) {
    Append(weights.bytes, &value, 4);
    weights.values.push_back(value);
  } else if (dtype == DType::kF16) {
    const uint16_t half = FloatToHalf(value);
    Append(weights.bytes, &half, 2);
    weights.values.push_back(HalfToFloat(half));
  } else {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const auto half = static_cast<uint16_t>(bits >> 16);
    bits &= 0xffff0000;
    std::memcpy(&value, &bits, 4);
    Append(weights.bytes, &half, 2);
    weights.values.push_back(value);
  }
}

// E4M3: 3 mantissa bits, smallest normal exponent −6, largest value 448.
float RoundedToFp8(float value) {
  constexpr float kLargest = 448;
  const float size = std::min(std::fabs(value), kLargest);
  if (size == 0) return value;
  const float step = std::ldexp(1.0f, std::max(std::ilogb(size), -6) - 3);
  return std::copysign(std::min(std::nearbyint(size / step) * step, kLargest), value);
}

}  // namespace

HostMatrix HostWeights::matrix() const {
  HostMatrix matrix{dtype, rows, cols, bytes.data()};
  if (scales.empty()) return matrix;
  matrix.use = WeightUse::kMatMul;
  matrix.groups = groups;
  matrix.groups.scales = scales.data();
  if (!zeros.empty()) matrix.groups.zeros = zeros.data();
  if (!of_input.empty()) matrix.groups.of_input = of_input.data();
  return matrix;
}

float HalfToFloat(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int mantissa = half & 1023;
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

uint16_t FloatToHalf(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  if (std::isnan(value)) return 0x7e00;
  if (size == 0) return sign;
  if (size >= 65520.0f) return sign | 0x7c00;
  int exponent = 0;
  std::frexp(size, &exponent);
  const int unit = std::max(exponent - 11, -24);  // log2 of the last mantissa bit
  const auto mantissa = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, -unit)));
  // A mantissa that rounds up to 2048 carries into the exponent, which is correct.
  const uint32_t bits = unit == -24 ? mantissa : mantissa - 1024 + ((unit + 25U) << 10);
  return static_cast<uint16_t>(sign | bits);
}

float Rounded(DType dtype, float value) {
  if (dtype == DType::kFp8) return RoundedToFp8(value);
  if (dtype == DType::kF32) return value;
  if (dtype == DType::kF16) return HalfToFloat(FloatToHalf(value));
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

namespace {

// Backends that compute in bf16 may round scales to it: gives the weights such scales.
void RoundScales(HostWeights& weights) {
  std::vector<float> before = weights.scales;
  for (float& scale : weights.scales) scale = Rounded(DType::kBF16, scale);
  WeightGroups groups = weights.groups;
  if (!weights.of_input.empty()) groups.of_input = weights.of_input.data();
  for (int64_t row = 0; row < weights.rows; ++row) {
    for (int64_t col = 0; col < weights.cols; ++col) {
      const size_t group = groups.IndexOf(row, col);
      float& value = weights.values[static_cast<size_t>(row * weights.cols + col)];
      const float number = value / before[group];
      value = weights.scales[group] * (weights.dtype == DType::kFp8 ? Rounded(DType::kFp8, number)
                                                                    : std::nearbyint(number));
    }
  }
}

}  // namespace

HostWeights HeldBy(const Ops& ops, HostWeights weights) {
  const bool has_integers = weights.dtype == DType::kU4 || weights.dtype == DType::kI8;
  if (ops.activation_dtype() == DType::kBF16 && !weights.scales.empty() &&
      (has_integers || weights.dtype == DType::kFp8)) {
    RoundScales(weights);
  }
  for (float& value : weights.values) value = Rounded(ops.activation_dtype(), value);
  return weights;
}

int64_t WholeCols(const Ops& ops, int64_t cols) {
  return ops.activation_dtype() == DType::kF32 ? cols : (cols + 7) / 8 * 8;
}

HostWeights RandomWeights(DType dtype, int64_t rows, int64_t cols, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.1f);
  std::uniform_real_distribution<float> factor(0.001f, 0.02f);
  HostWeights weights{.dtype = dtype, .rows = rows, .cols = cols};
  const BlockShape shape = ShapeOf(dtype);
  if (shape.elements == 1) {
    for (int64_t i = 0; i < rows * cols; ++i) AddPlain(dtype, normal(random), weights);
    return weights;
  }
  const auto blocks = static_cast<size_t>(rows * cols) / shape.elements;
  for (size_t b = 0; b < blocks; ++b) {
    Bytes block(shape.bytes);
    for (uint8_t& byte : block) byte = static_cast<uint8_t>(random());
    float sign = 1.0f;
    for (const size_t at : HalfOffsets(dtype)) {
      PutHalf(block, at, sign * factor(random));
      sign = dtype == DType::kQ4_1 || dtype == DType::kQ5_1 ? -4.0f : 1.0f;
    }
    for (size_t i = 0; i < shape.elements; ++i) {
      weights.values.push_back(BlockValue(dtype, block, i));
    }
    Append(weights.bytes, block.data(), block.size());
  }
  return weights;
}

}  // namespace baton::parity
