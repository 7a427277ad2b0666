#pragma once

#include <cstdint>

#include "kernels/ops.h"

// The sizes of steps for which CUDA graphs are captured.
namespace baton::cuda {

// Steps that decode more rows run without a graph: each kernel runs long enough for the host to
// launch the next one meanwhile.
inline constexpr int32_t kMaxRecordedRows = 512;

// The number of rows to which a step that decodes `rows` rows is padded; graphs are captured for
// these sizes: 1, 2, 4, 8, then multiples of 16 up to 256, then multiples of 64.
int32_t PaddedDecodeRows(int32_t rows);

// Whether every row is the only row of its sequence and its logits are requested.
bool OnlyDecodes(const StepInput& input);

// As Ops::SizesToWarmUp.
WarmUpSizes SizesToWarmUp(int32_t rows, int32_t decode_rows);

}  // namespace baton::cuda
