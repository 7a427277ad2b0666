#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"

// The words of quantised panels, whose layout packed_matrix.h describes. `values` are the integers
// of 32 inputs of one output, or the indices into a table (kFp4, kIQ4); `block` is that of the
// panel.
namespace baton::cpu {

// Writes the words of output `lane`. The block must be zero where no other output has written.
void PutValues(PanelKind kind, const int8_t (&values)[kBlock], int64_t lane, std::byte* block);

// The integer of input `k` of a block of a panel of this kind: the number of the table for kIQ4,
// and for kFp4 twice the number.
int IntegerOf(PanelKind kind, const std::byte* block, int64_t lane, int64_t k);

}  // namespace baton::cpu
