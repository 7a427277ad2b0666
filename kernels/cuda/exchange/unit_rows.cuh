#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

namespace baton::cuda {

// Rows in units of a word or a vector of 16 bytes, for kernels that move them to other GPUs.
template <class Unit>
struct UnitRows {
  Unit* data;
  int32_t count;
  int32_t row;     // units of a row; `count` when there are no gaps
  int64_t stride;  // units

  // `rows` rows of `row_bytes` bytes, which begin at multiples of `stride` bytes after `data`.
  static UnitRows Of(std::byte* data, int64_t rows, int64_t row_bytes, int64_t stride) {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(Unit));
    const auto count = static_cast<int32_t>(rows * row_bytes / kBytes);
    const bool gaps = rows > 1 && stride != row_bytes;
    return {.data = reinterpret_cast<Unit*>(data),
            .count = count,
            .row = gaps ? static_cast<int32_t>(row_bytes / kBytes) : count,
            .stride = stride / kBytes};
  }

  static UnitRows Of(const Tensor& x) {
    const auto bytes = static_cast<int64_t>(ShapeOf(x.dtype).bytes);
    return Of(x.data, x.rows, x.cols * bytes, x.stride * bytes);
  }

  __device__ __forceinline__ Unit* at(int32_t index) const {
    if (row == count) return data + index;
    const auto unit = static_cast<uint32_t>(index);
    const auto width = static_cast<uint32_t>(row);
    return data + unit / width * stride + unit % width;
  }
};

}  // namespace baton::cuda
