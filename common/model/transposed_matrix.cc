#include "common/model/transposed_matrix.h"

#include <cstring>
#include <span>

#include "kernels/dequantize.h"

namespace baton {

HostMatrix RowsOf(const HostMatrix& whole, int64_t first, int64_t count) {
  HostMatrix part = whole;
  part.rows = count;
  part.first_row += first;
  part.groups.first_row += first;
  if (whole.data != nullptr) part.data = whole.Row(first);
  return part;
}

WidenedMatrix::WidenedMatrix(const HostMatrix& matrix) : view_(matrix) {
  const bool quantised = matrix.has_groups() || ShapeOf(matrix.dtype).elements != 1;
  if (!quantised || matrix.data == nullptr) return;
  const auto cols = static_cast<size_t>(matrix.cols);
  weights_.resize(static_cast<size_t>(matrix.rows) * cols);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    const auto weights = std::span(weights_).subspan(static_cast<size_t>(row) * cols, cols);
    DequantizeRow(matrix, row, weights);
  }
  const std::byte* const data = std::as_bytes(std::span(weights_)).data();
  view_ = {DType::kF32, matrix.rows, matrix.cols, data};
  view_.may_quantize = matrix.may_quantize;
  view_.use = matrix.use;
}

TransposedMatrix TransposedMatrix::Of(const HostMatrix& matrix) {
  HostMatrix from = matrix;
  std::vector<uint16_t> drawn;
  if (matrix.data == nullptr) {
    drawn.resize(static_cast<size_t>(matrix.rows * matrix.cols));
    DrawMatrix(matrix, drawn);
    from = {DType::kBF16, matrix.rows, matrix.cols, std::as_bytes(std::span(drawn)).data()};
  }
  const WidenedMatrix widened(from);
  from = widened.view();
  const size_t number = ShapeOf(from.dtype).bytes;
  const auto rows = static_cast<size_t>(from.rows);
  const auto cols = static_cast<size_t>(from.cols);
  TransposedMatrix to;
  to.bytes_.resize(rows * cols * number);
  for (size_t row = 0; row < rows; ++row) {
    const std::byte* const numbers = from.Row(static_cast<int64_t>(row));
    for (size_t col = 0; col < cols; ++col) {
      std::memcpy(to.bytes_.data() + (col * rows + row) * number, numbers + col * number, number);
    }
  }
  to.view_ = {from.dtype, from.cols, from.rows, to.bytes_.data()};
  to.view_.may_quantize = matrix.may_quantize;
  to.view_.use = matrix.use;
  return to;
}

}  // namespace baton
