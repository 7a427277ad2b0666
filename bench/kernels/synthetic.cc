#include "bench/kernels/synthetic.h"

#include <random>

#include "common/base/check.h"

namespace baton::bench {
namespace {

// Where the half-precision scales of a block are; of floats, the bytes with the exponent.
std::vector<size_t> ScalesOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {2};
    case DType::kQ6_K:
      return {208};
    case DType::kQ3_K:
      return {108};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    default:
      return {0};
  }
}

// Random quantized blocks, with scales that are small and finite.
std::vector<std::byte> RandomBytes(DType dtype, int64_t rows, int64_t cols) {
  const BlockShape shape = ShapeOf(dtype);
  std::vector<std::byte> bytes(RowBytes(dtype, static_cast<size_t>(rows * cols)));
  uint32_t random = 1;
  for (std::byte& byte : bytes) {
    random = random * 1664525 + 1013904223;
    byte = static_cast<std::byte>(random >> 24);
  }
  for (size_t block = 0; block < bytes.size(); block += shape.bytes) {
    if (dtype == DType::kMxfp4) {
      bytes[block] = std::byte{119};
      continue;
    }
    for (const size_t scale : ScalesOf(dtype)) bytes[block + scale + 1] = std::byte{0x1c};
  }
  return bytes;
}

std::unique_ptr<Matrix> Checked(StatusOr<std::unique_ptr<Matrix>> matrix) {
  BATON_CHECK(matrix.ok(), "{}", Message(matrix.status()));
  return *std::move(matrix);
}

}  // namespace

CpuIsa& IsaInUse() {
  static CpuIsa isa = BestCpuIsa();
  return isa;
}

Backend::Backend(int threads) {
  auto made = MakeCpuOps(device, {threads, IsaInUse()});
  BATON_CHECK(made.ok(), "{}", Message(made.status()));
  ops = *std::move(made);
}

std::unique_ptr<Matrix> RandomMatrix(Ops& ops, DType dtype, int64_t rows, int64_t cols) {
  const auto bytes = RandomBytes(dtype, rows, cols);
  const HostMatrix host{dtype, rows, cols, bytes.data()};
  return Checked(ops.LoadMatrix({&host, 1}));
}

std::unique_ptr<Matrix> RandomGroups(Ops& ops, const GroupForm& form, int64_t rows, int64_t cols) {
  std::vector<std::byte> bytes(static_cast<size_t>(rows) *
                               RowBytes(form.dtype, static_cast<size_t>(cols)));
  uint32_t random = 1;
  for (std::byte& byte : bytes) {
    random = random * 1664525 + 1013904223;
    byte = static_cast<std::byte>(random >> 24 & 0xf7);  // no NaN of FP8
  }
  HostMatrix host{form.dtype, rows, cols, bytes.data()};
  WeightGroups& groups = host.groups;
  groups.rows = form.group_rows;
  groups.cols = form.group_cols == 0 ? cols : form.group_cols;
  groups.in_row = (cols + groups.cols - 1) / groups.cols;
  groups.scale_type = form.scale_type;
  groups.zero = form.dtype == DType::kU4 ? 8 : 0;
  const auto sets = static_cast<size_t>((rows + groups.rows - 1) / groups.rows * groups.in_row);
  const std::vector<float> scales(sets, 1.0f / 128);
  const std::vector<int8_t> zeros(sets, 7);
  groups.scales = scales.data();
  if (form.zeros) groups.zeros = zeros.data();
  return Checked(ops.LoadMatrix({&host, 1}));
}

std::unique_ptr<Matrix> RandomGateUp(Ops& ops, DType dtype, int64_t rows, int64_t cols) {
  const auto bytes = RandomBytes(dtype, rows, cols);
  const HostMatrix host{dtype, rows, cols, bytes.data()};
  return Checked(ops.LoadGateUp(host, host));
}

std::vector<float> RandomValues(size_t count) {
  std::mt19937_64 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

Activations::Activations(int64_t rows, int64_t cols)
    : values_(RandomValues(static_cast<size_t>(rows * cols))), cols_(cols) {}

Tensor Activations::view(int64_t rows) const {
  return {reinterpret_cast<std::byte*>(values_.data()), DType::kF32, rows, cols_, cols_};
}

Sequences::Sequences(Ops& ops,
                     DType dtype,
                     int32_t layers,
                     const HeadShape& heads,
                     int32_t sequences,
                     int32_t tokens)
    : sequences_(sequences), blocks_each_((tokens + 15) / 16) {
  view_.dtype = dtype;
  view_.blocks = sequences * blocks_each_;
  view_.layers = layers;
  view_.kv_heads = heads.kv_heads;
  view_.head_dim = heads.head_dim;
  view_.k_dim_major = ops.kv_needs().k_dim_major;
  view_.head_stride = int64_t{16} * heads.head_dim * static_cast<int64_t>(ShapeOf(dtype).bytes);
  view_.value_offset = view_.head_stride * heads.kv_heads;
  view_.layer_stride = view_.value_offset * 2;
  view_.block_stride = view_.layer_stride * layers;
  auto memory = ops.device().Allocate(static_cast<size_t>(view_.block_stride * view_.blocks),
                                      Sharing::kShared);
  BATON_CHECK(memory.ok(), "{}", Message(memory.status()));
  buffer_ = *std::move(memory);
  view_.base = buffer_->data();
  for (int32_t block = 0; block < view_.blocks; ++block) tables_.push_back(block);
}

StepInput Sequences::Step(int32_t context, int32_t rows) {
  tokens_.clear();
  positions_.clear();
  rows_.clear();
  logit_rows_.clear();
  for (int32_t s = 0; s < sequences_; ++s) {
    rows_.push_back({s * rows, rows, context, s * blocks_each_});
    for (int32_t i = 0; i < rows; ++i) {
      tokens_.push_back((s * 37 + i * 11) % 1000);
      positions_.push_back(context + i);
    }
    logit_rows_.push_back((s + 1) * rows - 1);
  }
  return {tokens_, positions_, rows_, tables_, logit_rows_};
}

}  // namespace baton::bench
