#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/panel_format.h"
#include "kernels/dtype.h"

// Panels of GGUF's block formats. The values keep their bits and the scales their form, so panels
// have the size of the file: but Q2_K and Q3_K, whose values are stored in 4 bits.
namespace baton::cpu {

// The form of panels of a block format with `cols` inputs, a whole number of blocks.
PanelFormat BlockFormatOf(DType dtype, int64_t cols);

// The integers of weights [32·index, 32·index + 32) of the row that begins at `row`, from 0 on
// where PanelView::zero_point is subtracted; indices into the table for kFp4 and kIQ4.
void ReadBlockValues(DType dtype, const std::byte* row, int64_t index, int8_t (&values)[kBlock]);

// Writes the scales of the row that begins at `row` to those of a panel, as output `lane`. Returns
// whether all of them are finite.
bool PutBlockScales(
    DType dtype, const PanelFormat& format, const std::byte* row, int64_t lane, std::byte* to);

}  // namespace baton::cpu
