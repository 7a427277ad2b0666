#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"
#include "kernels/dtype.h"

namespace baton::cpu {

// 32 consecutive weights of one row, unpacked from a GGUF block:
// weight k = scale[k / 16] · (value[k] − zero point of the format) + minimum.
struct WeightBlock {
  int8_t values[kBlock] = {};
  float scale[2] = {};
  float minimum = 0;
  // The half-precision scale and minimum of the file, for formats that have one per 32 weights.
  uint16_t half_scale = 0;
  uint16_t half_minimum = 0;
};

// The panel layout for `dtype`, a quantised type: sets the format fields of PanelView, not the
// sizes and addresses.
PanelView PanelFormat(DType dtype);

// Weights [32·index, 32·index + 32) of the row that begins at `row`.
WeightBlock ReadBlock(DType dtype, const std::byte* row, int64_t index);

}  // namespace baton::cpu
