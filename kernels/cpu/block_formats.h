#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"
#include "kernels/dtype.h"

namespace baton::cpu {

// 32 neighbouring weights of one row, taken out of a GGUF block:
// weight k = scale[k / 16] · (value[k] − zero point of the format) + minimum.
struct WeightBlock {
  int8_t values[kBlock] = {};
  float scale[2] = {};
  float minimum = 0;
  // The file's own half-precision scale and minimum, for the formats that have one per block.
  uint16_t half_scale = 0;
  uint16_t half_minimum = 0;
};

// How blocks of `dtype` (a quantised type) lie in panels: everything of PanelView but addresses.
PanelView PanelFormat(DType dtype);

// Weights [32·index, 32·index + 32) of the row that begins at `row`.
WeightBlock ReadBlock(DType dtype, const std::byte* row, int64_t index);

}  // namespace baton::cpu
