#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

namespace baton {

// Some columns of a row-major matrix.
struct ColumnRange {
  size_t first = 0;
  size_t step = 1;
  size_t count = 0;
};

// Writes column first + r · step of a row-major matrix of `cols` columns as row r of `to`.
template <class Number>
void CopyColumns(std::span<const std::byte> from,
                 size_t cols,
                 const ColumnRange& range,
                 std::byte* to) {
  constexpr size_t kTogether = 64 / sizeof(Number);  // rows of `to`, whose numbers share a line
  const size_t rows = from.size() / sizeof(Number) / cols;
  const size_t outputs = range.count;
  for (size_t first = 0; first < outputs; first += kTogether) {
    const size_t last = std::min(outputs, first + kTogether);
    for (size_t row = 0; row < rows; ++row) {
      const std::byte* const numbers = from.data() + row * cols * sizeof(Number);
      for (size_t i = first; i < last; ++i) {
        std::memcpy(to + (i * rows + row) * sizeof(Number),
                    numbers + (range.first + i * range.step) * sizeof(Number),
                    sizeof(Number));
      }
    }
  }
}

}  // namespace baton
