#include "tests/parity/device_tensor.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "tests/parity/host_weights.h"

namespace baton::parity {
namespace {

constexpr int64_t kGap = 8;  // fewest unused elements between rows

}  // namespace

std::vector<float> RandomFloats(size_t count, uint64_t seed, float scale) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<float> RandomActivations(const Ops& ops, size_t count, uint64_t seed, float scale) {
  std::vector<float> values = RandomFloats(count, seed, scale);
  for (float& value : values) value = Rounded(ops.activation_dtype(), value);
  return values;
}

DeviceTensor::DeviceTensor(Ops& ops, int64_t rows, int64_t cols)
    : DeviceTensor(ops, ops.activation_dtype(), rows, cols) {}

DeviceTensor::DeviceTensor(Ops& ops, DType dtype, int64_t rows, int64_t cols) : ops_(ops) {
  BATON_CHECK(
      dtype == DType::kF32 || dtype == DType::kBF16, "{} is not an activation type", Name(dtype));
  view_.dtype = dtype;
  view_.rows = rows;
  view_.cols = cols;
  // Rows begin at multiples of 16 bytes.
  view_.stride = (cols + 7) / 8 * 8 + kGap;
  const int64_t room = std::max<int64_t>(rows, ops.PaddedRows(static_cast<int32_t>(rows)));
  auto buffer = ops.device().Allocate(
      static_cast<size_t>(room * view_.stride) * ShapeOf(view_.dtype).bytes, Sharing::kPrivate);
  BATON_CHECK(buffer.ok(), "{}", Message(buffer.status()));
  buffer_ = *std::move(buffer);
  view_.data = buffer_->data();
}

DeviceTensor::DeviceTensor(Ops& ops, int64_t rows, int64_t cols, const std::vector<float>& values)
    : DeviceTensor(ops, rows, cols) {
  Write(values);
}

void DeviceTensor::Write(const std::vector<float>& values) {
  std::vector<std::byte> bytes(buffer_->size());
  for (int64_t row = 0; row < view_.rows; ++row) {
    for (int64_t col = 0; col < view_.cols; ++col) {
      const float value = values[static_cast<size_t>(row * view_.cols + col)];
      const auto at = static_cast<size_t>(row * view_.stride + col);
      if (view_.dtype == DType::kF32) {
        std::memcpy(bytes.data() + at * 4, &value, 4);
      } else {
        // The upper half of the bits of a float32.
        const float rounded = Rounded(DType::kBF16, value);
        std::memcpy(bytes.data() + at * 2, reinterpret_cast<const std::byte*>(&rounded) + 2, 2);
      }
    }
  }
  const Status status = ops_.device().CopyIn(*buffer_, 0, bytes);
  BATON_CHECK(status.ok(), "{}", Message(status));
}

std::vector<float> DeviceTensor::Read() const {
  std::vector<std::byte> bytes(buffer_->size());
  const Status status = ops_.device().CopyOut(*buffer_, 0, bytes);
  BATON_CHECK(status.ok(), "{}", Message(status));
  std::vector<float> values;
  for (int64_t row = 0; row < view_.rows; ++row) {
    for (int64_t col = 0; col < view_.cols; ++col) {
      const auto at = static_cast<size_t>(row * view_.stride + col);
      float value = 0;
      if (view_.dtype == DType::kF32) {
        std::memcpy(&value, bytes.data() + at * 4, 4);
      } else {
        std::memcpy(reinterpret_cast<std::byte*>(&value) + 2, bytes.data() + at * 2, 2);
      }
      values.push_back(value);
    }
  }
  return values;
}

Cache::Cache(Ops& ops,
             DType dtype,
             int32_t layers,
             const HeadShape& heads,
             int32_t block_tokens,
             int32_t blocks) {
  view.dtype = dtype;
  view.blocks = blocks;
  view.layers = layers;
  view.kv_heads = heads.kv_heads;
  view.head_dim = heads.head_dim;
  view.block_tokens = block_tokens;
  view.k_dim_major = ops.kv_needs().k_dim_major;
  view.head_stride =
      int64_t{block_tokens} * heads.head_dim * static_cast<int64_t>(ShapeOf(dtype).bytes);
  view.value_offset = view.head_stride * heads.kv_heads;
  view.layer_stride = view.value_offset * 2;
  view.block_stride = view.layer_stride * layers;
  auto memory =
      ops.device().Allocate(static_cast<size_t>(view.block_stride * blocks), Sharing::kShared);
  BATON_CHECK(memory.ok(), "{}", Message(memory.status()));
  buffer = *std::move(memory);
  view.base = buffer->data();
}

}  // namespace baton::parity
