#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

namespace baton::cuda {

// Rows divided into units, for kernels that move the rows to other GPUs. A unit is a word of 4
// bytes or a vector of 16 bytes.
template <class Unit>
struct UnitRows {
  Unit* data;
  int32_t count;      // all units
  int32_t row_units;  // the units of a row; `count` if there are no gaps between the rows
  int64_t stride;     // units from one row to the next

  // `rows` rows of `row_bytes` bytes each, `stride` bytes from one row to the next.
  static UnitRows Of(std::byte* data, int64_t rows, int64_t row_bytes, int64_t stride) {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(Unit));
    const auto count = static_cast<int32_t>(rows * row_bytes / kBytes);
    const bool gaps = rows > 1 && stride != row_bytes;
    return {.data = reinterpret_cast<Unit*>(data),
            .count = count,
            .row_units = gaps ? static_cast<int32_t>(row_bytes / kBytes) : count,
            .stride = stride / kBytes};
  }

  static UnitRows Of(const Tensor& x) {
    const auto bytes = static_cast<int64_t>(ShapeOf(x.dtype).bytes);
    return Of(x.data, x.rows, x.cols * bytes, x.stride * bytes);
  }

  __device__ __forceinline__ Unit* at(int32_t index) const {
    if (row_units == count) return data + index;
    const auto unit = static_cast<uint32_t>(index);
    const auto width = static_cast<uint32_t>(row_units);
    return data + unit / width * stride + unit % width;
  }
};

}  // namespace baton::cuda
