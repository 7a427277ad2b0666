#include "kernels/cuda/step/decode_sizes.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {

int32_t PaddedDecodeRows(int32_t rows) {
  for (const int32_t size : {1, 2, 4, 8}) {
    if (rows <= size) return size;
  }
  const int32_t step = rows <= 256 ? 16 : 64;
  return RoundUp(rows, step);
}

bool OnlyDecodes(const StepInput& input) {
  const size_t rows = input.tokens.size();
  if (input.sequences.size() != rows || input.logit_rows.size() != rows) return false;
  for (size_t i = 0; i < rows; ++i) {
    if (!std::cmp_equal(input.logit_rows[i], i)) return false;
  }
  return true;
}

WarmUpSizes SizesToWarmUp(int32_t rows, int32_t decode_rows) {
  WarmUpSizes sizes;
  for (const int32_t size : Gemm::RowClasses(rows)) {
    if (size <= rows) sizes.prompt_rows.push_back(size);
  }
  const int32_t most = std::min(decode_rows, kMaxRecordedRows);
  // The last size stands for its whole size class, because the step pads it.
  for (int32_t size = 1; size < most; size = PaddedDecodeRows(size + 1)) {
    sizes.decode_rows.push_back(size);
  }
  if (most > 0) sizes.decode_rows.push_back(most);
  return sizes;
}

}  // namespace baton::cuda
