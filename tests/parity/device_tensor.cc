#include "tests/parity/device_tensor.h"

#include <cstring>

#include "common/base/check.h"

namespace baton::parity {
namespace {

constexpr int64_t kGap = 8;  // unused elements between rows

uint16_t ToBf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float FromBf16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

}  // namespace

std::vector<float> RandomFloats(size_t count, uint64_t seed, float scale) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

DeviceTensor::DeviceTensor(Ops& ops, int64_t rows, int64_t cols) : ops_(ops) {
  view_.dtype = ops.activation_dtype();
  BATON_CHECK(view_.dtype == DType::kF32 || view_.dtype == DType::kBF16,
              "activations of {}",
              Name(view_.dtype));
  view_.rows = rows;
  view_.cols = cols;
  view_.stride = cols + kGap;
  auto buffer = ops.device().Allocate(
      static_cast<size_t>(rows * view_.stride) * ShapeOf(view_.dtype).bytes, Sharing::kPrivate);
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
        const uint16_t half = ToBf16(value);
        std::memcpy(bytes.data() + at * 2, &half, 2);
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
      uint16_t half = 0;
      if (view_.dtype == DType::kF32) {
        std::memcpy(&value, bytes.data() + at * 4, 4);
      } else {
        std::memcpy(&half, bytes.data() + at * 2, 2);
        value = FromBf16(half);
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
  view.k_dim_major = ops.k_dim_major();
  view.head_stride =
      int64_t{block_tokens} * heads.head_dim * static_cast<int64_t>(ShapeOf(dtype).bytes);
  view.part_stride = view.head_stride * heads.kv_heads;
  view.layer_stride = view.part_stride * 2;
  view.block_stride = view.layer_stride * layers;
  auto memory =
      ops.device().Allocate(static_cast<size_t>(view.block_stride * blocks), Sharing::kShared);
  BATON_CHECK(memory.ok(), "{}", Message(memory.status()));
  buffer = *std::move(memory);
  view.base = buffer->data();
}

}  // namespace baton::parity
