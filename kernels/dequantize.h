#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/dtype.h"
#include "kernels/tensor.h"

namespace baton {

// Turns stored numbers of any DType into float32, exactly as ggml's reference does. `from` must
// hold RowBytes(dtype, out.size()) bytes and out.size() be whole blocks. No alignment is needed.
void Dequantize(DType dtype, std::span<const std::byte> from, std::span<float> out);

// The numbers of a matrix that comes without data, in bf16; `out` has rows × cols of them.
void DrawMatrix(const HostMatrix& matrix, std::span<uint16_t> out);

float HalfToFloat(uint16_t half);    // IEEE binary16
float BrainToFloat(uint16_t brain);  // bfloat16
uint16_t FloatToBrain(float value);  // to nearest, ties to even; NaN stays NaN

}  // namespace baton
