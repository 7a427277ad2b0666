#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/kernel_table.h"

namespace baton::cpu {

// The rows of a matmul's input, cut into tiles and quantised as kernels want them. Grows as needed.
class TileBuffer final {
 public:
  // Makes room for `rows` rows of `cols` inputs, of which `blocks` blocks are to be quantised
  // (0 = none). `x` are the rows.
  void Reset(const float* x, int64_t stride, int64_t rows, int64_t blocks);

  int64_t rows() const { return rows_; }
  int64_t tiles() const { return (rows_ + kTileRows - 1) / kTileRows; }
  // Tile `tile` for reading.
  TileView Tile(int64_t tile) const;
  // What `KernelTable::quantize` needs to fill in row `row`.
  QuantizeArgs Row(int64_t row);

 private:
  const float* x_ = nullptr;
  int64_t stride_ = 0;
  int64_t rows_ = 0;
  int64_t blocks_ = 0;
  std::vector<int16_t> values_;
  std::vector<float> scales_;
  std::vector<float> sums_;
  std::vector<int32_t> counts_;
};

}  // namespace baton::cpu
