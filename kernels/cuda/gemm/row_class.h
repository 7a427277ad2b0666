#pragma once

#include <cstdint>

#include "kernels/cuda/primitives/rounding.h"

// Numbers of rows that share an algorithm of cuBLASLt.
namespace baton::cuda {

// The row class of `rows`, as its largest number of rows. Up to 8 rows, each number is a class of
// its own; up to 256, each multiple of 16; above, there are four classes in each doubling.
constexpr int32_t RowClass(int32_t rows) {
  if (rows <= 8) return rows;
  int32_t step = 16;
  while (rows > 256 && rows > 8 * step) step *= 2;
  return RoundUp(rows, step);
}

// The smallest number of rows of the row class.
constexpr int32_t FirstOfClass(int32_t row_class) {
  int32_t rows = row_class;
  while (rows > 1 && RowClass(rows - 1) == row_class) --rows;
  return rows;
}

}  // namespace baton::cuda
