#include "kernels/cpu/tile_buffer.h"

#include <algorithm>

namespace baton::cpu {

void TileBuffer::Reset(const float* x, int64_t stride, int64_t rows, int64_t blocks, bool halves) {
  x_ = x;
  stride_ = stride;
  rows_ = rows;
  blocks_ = blocks;
  halves_ = halves;
  const auto entries = static_cast<size_t>(rows * blocks);
  if (halves && first_counts_.size() < entries) first_counts_.resize(entries);
  if (scales_.size() >= entries) return;
  values_.resize(entries * kBlock);
  scales_.resize(entries);
  sums_.resize(entries);
  counts_.resize(entries);
}

TileView TileBuffer::Tile(int64_t tile) const {
  const int64_t first = tile * kTileRows;
  const int64_t entry = first * blocks_;
  TileView view;
  view.rows = static_cast<int32_t>(std::min<int64_t>(kTileRows, rows_ - first));
  view.x = x_ + first * stride_;
  view.x_stride = stride_;
  if (blocks_ == 0) return view;
  view.values = values_.data() + entry * kBlock;
  view.scales = scales_.data() + entry;
  view.sums = sums_.data() + entry;
  view.counts = counts_.data() + entry;
  if (halves_) view.first_counts = first_counts_.data() + entry;
  return view;
}

QuantizeArgs TileBuffer::Row(int64_t row) {
  const int64_t first = row / kTileRows * kTileRows;
  const int64_t entry = first * blocks_;
  QuantizeArgs args;
  args.x = x_ + row * stride_;
  args.blocks = blocks_;
  args.row = static_cast<int32_t>(row - first);
  args.rows = static_cast<int32_t>(std::min<int64_t>(kTileRows, rows_ - first));
  args.values = values_.data() + entry * kBlock;
  args.scales = scales_.data() + entry;
  args.sums = sums_.data() + entry;
  args.counts = counts_.data() + entry;
  if (halves_) args.first_counts = first_counts_.data() + entry;
  return args;
}

}  // namespace baton::cpu
