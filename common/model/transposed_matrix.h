#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/tensor.h"

namespace baton {

// `count` rows of `whole` from row `first` on, as a view.
HostMatrix RowsOf(const HostMatrix& whole, int64_t first, int64_t count);

// A matrix whose numbers are weights: a view of one that is not quantised, or a copy in float32.
// Owns the copy.
class WidenedMatrix {
 public:
  explicit WidenedMatrix(const HostMatrix& matrix);
  WidenedMatrix(const WidenedMatrix&) = delete;
  WidenedMatrix& operator=(const WidenedMatrix&) = delete;

  const HostMatrix& view() const { return view_; }

 private:
  std::vector<float> weights_;
  HostMatrix view_;
};

// A copy of a matrix with rows and columns exchanged. Owns its numbers, which have the type of the
// matrix, or float32 when it is quantised.
class TransposedMatrix {
 public:
  TransposedMatrix(TransposedMatrix&&) = default;
  // Random numbers are drawn (DrawMatrix).
  static TransposedMatrix Of(const HostMatrix& matrix);

  const HostMatrix& view() const { return view_; }

 private:
  TransposedMatrix() = default;

  std::vector<std::byte> bytes_;
  HostMatrix view_;  // of bytes_
};

}  // namespace baton
