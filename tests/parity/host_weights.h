#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"

namespace baton::parity {

// A random matrix in a file format, and its dequantised values. The formats are implemented here
// independently of the backends.
struct HostWeights {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<std::byte> bytes = {};
  std::vector<float> values = {};  // [rows][cols]
  // Of weights with groups (group_weights.h), else empty.
  std::vector<float> scales = {};
  std::vector<int8_t> zeros = {};
  std::vector<int32_t> of_input = {};
  WeightGroups groups = {};
  WeightUse use = WeightUse::kMatMul;

  HostMatrix matrix() const;
};

HostWeights RandomWeights(DType dtype, int64_t rows, int64_t cols, uint64_t seed);

// The byte offsets of the half-precision factors of a block; MXFP4 has an exponent at 0 instead.
std::vector<size_t> HalfOffsets(DType dtype);
// `weights` as `ops` stores them: backends with bf16 activations round their weights to bf16.
HostWeights HeldBy(const Ops& ops, HostWeights weights);
// Rounds `cols` up for a backend with 16-bit activations, which needs rows of a multiple of 16
// bytes.
int64_t WholeCols(const Ops& ops, int64_t cols);

// `value` rounded to `dtype` (kF32, kF16, kBF16 or kFp8); to nearest, ties to even. Values too
// large for kFp8 become its largest number.
float Rounded(DType dtype, float value);

float HalfToFloat(uint16_t half);
// Rounds to nearest, ties to even.
uint16_t FloatToHalf(float value);

}  // namespace baton::parity
