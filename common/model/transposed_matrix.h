#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "kernels/tensor.h"

namespace baton {

// `count` rows of `whole` from row `first` on, as a view.
HostMatrix RowsOf(const HostMatrix& whole, int64_t first, int64_t count);

// A copy of a matrix with rows and columns exchanged. Owns its numbers, which have the type of the
// matrix.
class TransposedMatrix {
 public:
  TransposedMatrix(TransposedMatrix&&) = default;
  // Random numbers are drawn (DrawMatrix). Unimplemented for a type of blocks, naming it.
  static StatusOr<TransposedMatrix> Of(const HostMatrix& matrix);

  const HostMatrix& view() const { return view_; }

 private:
  TransposedMatrix() = default;

  std::vector<std::byte> bytes_;
  HostMatrix view_;  // of bytes_
};

}  // namespace baton
