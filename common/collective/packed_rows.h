#pragma once

#include <cstddef>
#include <span>

#include "kernels/collective.h"

namespace baton {

// The bytes begin … end - 1 of every row, seen as one string of bytes without gaps, row after row.
// A value; the rows' memory belongs to the caller.
class PackedRows final {
 public:
  // The part of rank `rank`; see Collective::AllGather.
  PackedRows(const CollectiveRows& rows, std::span<const size_t> ends, int rank);

  size_t size() const { return size_; }
  // Copies the packed bytes offset … offset + to.size() - 1 out of the rows.
  void CopyOut(size_t offset, std::span<std::byte> to) const;
  // Copies `from` into the rows, to the packed bytes from `offset` on.
  void CopyIn(size_t offset, std::span<const std::byte> from) const;

 private:
  // Calls visit(place in the rows, position from 0 on, bytes) for each contiguous piece.
  template <class Visit>
  void ForEachPiece(size_t offset, size_t bytes, const Visit& visit) const;

  std::byte* data_;
  size_t width_;
  size_t stride_;
  size_t size_;
};

// Checks what every rank must pass to AllGather and GatherToFirst; `size` is the group's.
void CheckRows(const CollectiveRows& rows, std::span<const size_t> ends, int size);

}  // namespace baton
