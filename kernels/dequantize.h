#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/dtype.h"
#include "kernels/tensor.h"

namespace baton {

// Converts numbers of any DType to float32, exactly as ggml's reference does. `from` must hold
// RowBytes(dtype, out.size()) bytes, and out.size() must be whole blocks. Needs no alignment.
void Dequantize(DType dtype, std::span<const std::byte> from, std::span<float> out);

// The weights of a row of the matrix, which must have data, as float32: numbers of the type, times
// their scales (WeightGroups). `out` must hold matrix.cols numbers.
void DequantizeRow(const HostMatrix& matrix, int64_t row, std::span<float> out);

// Draws the random numbers, in bf16, of a matrix without data (HostMatrix). `out` must hold
// rows × cols numbers.
void DrawMatrix(const HostMatrix& matrix, std::span<uint16_t> out);

float HalfToFloat(uint16_t half);    // IEEE binary16
float BrainToFloat(uint16_t brain);  // bfloat16
// The FP8 number (E4M3) closest to `value`, ties to even; the largest one, 448, beyond it. `value`
// is not NaN.
uint8_t FloatToFp8(float value);
uint16_t FloatToBrain(float value);  // to nearest, ties to even; NaN stays NaN

}  // namespace baton
