#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"

// The words of quantised panels, whose layout packed_matrix.h describes. `values` are the integers
// of 32 inputs of one output, or the bits of FP4 numbers; `block` is that of the panel.
namespace baton::cpu {

void PutNibbles(const int8_t (&values)[kBlock], int64_t lane, std::byte* block);
void PutBytes(const int8_t (&values)[kBlock], int64_t lane, std::byte* block);
void PutFp4(const int8_t (&values)[kBlock], int64_t lane, std::byte* block);

// The integer of input `k` of a block of a panel of this kind; of kFp4, twice the number.
int IntegerOf(PanelKind kind, const std::byte* block, int64_t lane, int64_t k);

}  // namespace baton::cpu
