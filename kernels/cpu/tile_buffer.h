#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/kernel_table.h"

namespace baton::cpu {

// The input rows of a GEMM, divided into tiles and quantised for the kernels. Grows as needed.
class TileBuffer final {
 public:
  // Sets the input to `rows` rows at `x`, `stride` floats apart, and allocates memory to quantise
  // `blocks` blocks of each row (0: the rows are not quantised), with sums of their halves if
  // `halves`.
  void Reset(const float* x, int64_t stride, int64_t rows, int64_t blocks, bool halves);

  int64_t rows() const { return rows_; }
  int64_t tiles() const { return (rows_ + kTileRows - 1) / kTileRows; }
  // The view of tile `tile` for a GEMM kernel.
  TileView Tile(int64_t tile) const;
  // The arguments with which KernelTable::quantize quantises row `row`.
  QuantizeArgs Row(int64_t row);

 private:
  const float* x_ = nullptr;
  int64_t stride_ = 0;
  int64_t rows_ = 0;
  int64_t blocks_ = 0;
  bool halves_ = false;
  std::vector<int16_t> values_;
  std::vector<float> scales_;
  std::vector<float> sums_;
  std::vector<int32_t> counts_;
  std::vector<int32_t> first_counts_;
};

}  // namespace baton::cpu
