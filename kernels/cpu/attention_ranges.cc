#include "kernels/cpu/attention_ranges.h"

#include <algorithm>

namespace baton::cpu {
namespace {

// Most rows of a sequence in one attention task.
constexpr int32_t kRowsPerTask = 8;

}  // namespace

FloatKind KindOf(DType dtype) {
  if (dtype == DType::kF32) return FloatKind::kF32;
  return dtype == DType::kF16 ? FloatKind::kF16 : FloatKind::kBF16;
}

std::vector<RowRange> CutRows(const StepInput& input, bool only_logit_rows) {
  std::vector<RowRange> ranges;
  for (const SequenceRows& sequence : input.sequences) {
    for (int32_t first = 0; first < sequence.row_count; first += kRowsPerTask) {
      const int32_t rows = std::min(kRowsPerTask, sequence.row_count - first);
      if (only_logit_rows) {
        const int32_t row = sequence.first_row + first;
        if (FirstLogitRow(input, row, rows) == row + rows) continue;
      }
      ranges.push_back({&sequence, first, rows});
    }
  }
  return ranges;
}

float* AlignedScratch(std::vector<float>& scratch, size_t size) {
  if (scratch.size() < size + 16) scratch.resize(size + 16);
  const auto address = reinterpret_cast<uintptr_t>(scratch.data());
  return scratch.data() + (64 - address % 64) % 64 / sizeof(float);
}

}  // namespace baton::cpu
