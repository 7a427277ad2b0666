#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/kernel_table.h"
#include "kernels/dtype.h"
#include "kernels/step_input.h"

// What the attention ops of the CPU backend have in common.
namespace baton::cpu {

// The kind of a KV cache of f32, f16 or bf16.
FloatKind KindOf(DType dtype);

// Some consecutive rows of a sequence, which one attention task computes.
struct RowRange {
  const SequenceRows* sequence;
  int32_t first;  // first row, counted within the sequence
  int32_t rows;
};

// The ranges of all rows, or of those ranges that have logit rows.
std::vector<RowRange> CutRows(const StepInput& input, bool only_logit_rows);

// At least `size` floats of `scratch`, 64-byte aligned.
float* AlignedScratch(std::vector<float>& scratch, size_t size);

}  // namespace baton::cpu
