#include "common/collective/packed_rows.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"

namespace baton {

PackedRows::PackedRows(const CollectiveRows& rows, std::span<const size_t> ends, int rank) {
  const size_t begin = rank == 0 ? 0 : ends[rank - 1];
  width_ = ends[rank] - begin;
  size_ = width_ * static_cast<size_t>(rows.count);
  data_ = size_ == 0 ? nullptr : rows.data + begin;
  stride_ = rows.stride;
  if (rows.count == 1 || width_ == stride_) {  // no gaps: one long row
    width_ = size_;
    stride_ = size_;
  }
}

template <class Visit>
void PackedRows::ForEachPiece(size_t offset, size_t bytes, const Visit& visit) const {
  BATON_CHECK(offset + bytes <= size_, "bytes {}+{} of {}", offset, bytes, size_);
  for (size_t done = 0; done < bytes;) {
    const size_t row = (offset + done) / width_;
    const size_t column = (offset + done) % width_;
    const size_t piece = std::min(width_ - column, bytes - done);
    visit(data_ + row * stride_ + column, done, piece);
    done += piece;
  }
}

void PackedRows::CopyOut(size_t offset, std::span<std::byte> to) const {
  ForEachPiece(offset, to.size(), [to](const std::byte* place, size_t at, size_t bytes) {
    std::memcpy(to.data() + at, place, bytes);
  });
}

void PackedRows::CopyIn(size_t offset, std::span<const std::byte> from) const {
  ForEachPiece(offset, from.size(), [from](std::byte* place, size_t at, size_t bytes) {
    std::memcpy(place, from.data() + at, bytes);
  });
}

void CheckRows(const CollectiveRows& rows, std::span<const size_t> ends, int size) {
  BATON_CHECK(ends.size() == static_cast<size_t>(size),
              "{} ends for a group of {} ranks",
              ends.size(),
              size);
  BATON_CHECK(std::is_sorted(ends.begin(), ends.end()), "the ends of the parts are not ascending");
  BATON_CHECK(rows.count >= 0, "{} rows", rows.count);
  BATON_CHECK(rows.count <= 1 || ends.back() <= rows.stride,
              "the parts end at byte {} of rows of {} bytes",
              ends.back(),
              rows.stride);
}

}  // namespace baton
