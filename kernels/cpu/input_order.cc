#include "kernels/cpu/input_order.h"

#include <algorithm>
#include <numeric>

#include "kernels/cpu/kernel_table.h"

namespace baton::cpu {
namespace {

bool CanBeReordered(const HostMatrix& matrix) {
  const WeightGroups& groups = matrix.groups;
  return groups.of_input != nullptr && groups.first_col == 0 &&
         matrix.row_stride() == matrix.cols && groups.cols % kBlock == 0;
}

}  // namespace

std::vector<int32_t> InputOrder(std::span<const HostMatrix> parts) {
  const auto inputs = [](const HostMatrix& matrix) {
    return std::span(matrix.groups.of_input, static_cast<size_t>(matrix.cols));
  };
  for (const HostMatrix& part : parts) {
    if (!CanBeReordered(part)) return {};
    if (!std::ranges::equal(inputs(part), inputs(parts[0]))) return {};
  }
  const auto of_input = inputs(parts[0]);
  std::vector<int32_t> order(of_input.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, {}, [&](int32_t input) { return of_input[static_cast<size_t>(input)]; });
  return order;
}

ReorderedMatrix::ReorderedMatrix(const HostMatrix& matrix, std::span<const int32_t> order)
    : view_(matrix) {
  const size_t row_bytes = RowBytes(matrix.dtype, order.size());
  const bool halves = row_bytes < order.size();
  numbers_.resize(static_cast<size_t>(matrix.rows) * row_bytes);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    const std::byte* const from = matrix.Row(row);
    std::byte* const to = numbers_.data() + static_cast<size_t>(row) * row_bytes;
    for (size_t i = 0; i < order.size(); ++i) {
      const auto input = static_cast<size_t>(order[i]);
      if (!halves) {
        to[i] = from[input];
        continue;
      }
      const std::byte nibble = from[input / 2] >> (input % 2 * 4) & std::byte{15};
      to[i / 2] |= nibble << (i % 2 * 4);
    }
  }
  view_.data = numbers_.data();
  view_.groups.of_input = nullptr;
}

}  // namespace baton::cpu
