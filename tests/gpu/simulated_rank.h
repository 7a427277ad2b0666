#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/overloaded.h"
#include "kernels/cuda/graph/bind_memory.h"
#include "kernels/cuda/graph/split_rows.h"
#include "kernels/cuda/graph/value_space.h"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/dequantize.h"

// A tensor rank of a small model whose ops are arithmetic on small whole numbers, which bf16 and
// float32 hold exactly, so that split ops give the results of whole ones.
namespace baton::cuda {

inline constexpr int64_t kRows = 4200;
inline constexpr int64_t kHalf = 2304;
inline constexpr int64_t kCols = 32;
inline constexpr int kSteps = 2;  // one behind the other
inline constexpr int kLayers = 3;
inline constexpr int64_t kLogitRows = 16;

// kGather…: ranks gather columns instead of adding up parts. …Fp8: with FP8 weights.
enum class Model { kBf16, kFp8, kMixture, kGather, kGatherFp8 };

// Of a number that bf16 holds exactly.
inline uint16_t ToBrain(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

inline float Get(const Tensor& x, int64_t row, int64_t col) {
  const auto at = static_cast<size_t>(row * x.stride + col);
  if (x.dtype == DType::kF32) return reinterpret_cast<const float*>(x.data)[at];
  return BrainToFloat(reinterpret_cast<const uint16_t*>(x.data)[at]);
}
inline void Set(const Tensor& x, int64_t row, int64_t col, float value) {
  const auto at = static_cast<size_t>(row * x.stride + col);
  if (x.dtype == DType::kF32) {
    reinterpret_cast<float*>(x.data)[at] = value;
  } else {
    reinterpret_cast<uint16_t*>(x.data)[at] = ToBrain(value);
  }
}
template <class Function>
void ForNumbers(const Tensor& x, const Function& function) {
  for (int64_t row = 0; row < x.rows; ++row) {
    for (int64_t col = 0; col < x.cols; ++col) Set(x, row, col, function(row, col));
  }
}

// Whether the values of a step are always in the same memory, or in memory that BindMemory finds.
enum class Memory { kFixed, kPlanned };

// The memory of a rank and its ops.
class Rank {
 public:
  Rank(int rank, int ranks, Model model, Memory memory = Memory::kFixed)
      : rank_(rank), model_(model), memory_(size_t{16} << 20) {
    split.rank = rank;
    split.ranks = ranks;
    for (int i = 1; i <= ranks; ++i) ends_.push_back(kCols / 8 * i / ranks * 8);
    // A put buffer holds the half's activations, or the other ranks' part of its residual.
    split.put_buffer_bytes = static_cast<size_t>(
        std::max(kHalf * 2, CeilDiv(kHalf, ranks) * int64_t{ranks - 1} * 4) * kCols);
    for (std::byte*& buffer : split.put_buffers) buffer = Take(split.put_buffer_bytes);
    split.scales = reinterpret_cast<float*>(Take(kRows * sizeof(float)));
    residual = Numbers(DType::kF32, kRows);
    for (Tensor* const x : {&attention, &delta, &normed, &hidden, &qkv}) {
      *x = Numbers(DType::kBF16, kRows);
    }
    last = Numbers(DType::kF32, kSteps * kLogitRows);
    for (Fp8Rows& rows : quantized_) {
      rows = Fp8Rows::At(Take(Fp8Rows::Bytes(kRows, kCols)), kRows, kCols);
    }
    if (memory == Memory::kPlanned) space_.emplace(Take(0));
  }
  Rank(const Rank&) = delete;

  // The ops of all steps. Each step leaves some rows of the residual in `last`.
  std::vector<StepOp> List(bool split_rows) {
    std::vector<StepOp> all;
    for (int step = 0; step < kSteps; ++step) {
      if (space_) space_->BeginStep();
      for (Tensor* const x : {&residual, &normed, &qkv}) Renew(*x);
      std::vector<StepOp> ops = {EmbedOp{.first_token = step, .out = residual}, NormOf({})};
      Project(ops, qkv);
      for (int layer = 0; layer < kLayers; ++layer) {
        Renew(attention);
        Attend(ops);
        Gather(ops, attention);
        Renew(delta);
        Multiply(ops, attention, Mine(delta), 0);
        Join(ops, delta);
        ops.emplace_back(NotifyOp{static_cast<size_t>(layer)});
        Renew(normed);
        ops.push_back(NormOf(delta));
        for (Tensor* const x : {&hidden, &delta}) Renew(*x);
        FeedForward(ops);
        Join(ops, delta);
        Renew(normed);
        ops.push_back(NormOf(delta));
        Renew(qkv);
        Project(ops, qkv);
      }
      Renew(attention);
      Attend(ops);
      Gather(ops, attention);
      ops.emplace_back(GatherOp{.x = residual, .out = last.Rows(step * kLogitRows, kLogitRows)});
      if (split_rows) SplitRows(ops, kRows, split);
      if (space_) {
        needed = BindMemory(ops, *space_, space_->results().begin);
        EXPECT_LE(used_ + needed.bytes, memory_.size());
      }
      all.insert(all.end(), ops.begin(), ops.end());
    }
    return all;
  }

  void Run(const StepOp& op) const {
    std::visit(Overloaded{[&](const EmbedOp& c) { Embed(c); },
                          [&](const NormOp& c) { Norm(c); },
                          [&](const QuantizeOp& c) { Quantize(c); },
                          [&](const RescaleOp& c) { Rescale(c); },
                          [&](const MatMulOp& c) { Multiply(c.problem); },
                          [&](const ExpertsOp& c) {
                            ForNumbers(c.out, [&](int64_t row, int64_t col) {
                              return Mixed(Get(c.x, row, col), col);
                            });
                          },
                          [&](const RopeOp& c) {
                            ForNumbers(c.qkv, [&](int64_t row, int64_t col) {
                              return std::fmod(Get(c.qkv, row, col) + 1, 61.0f);
                            });
                          },
                          [&](const AttentionOp& c) {
                            // A row's attention reads the rows before it.
                            ForNumbers(c.out, [&](int64_t row, int64_t col) {
                              return std::fmod(Get(c.qkv, row, col) + Get(c.qkv, row / 2, col),
                                               59.0f);
                            });
                          },
                          [&](const GatherOp& c) {
                            ForNumbers(c.out, [&](int64_t row, int64_t col) {
                              return Get(c.x, (kRows - 1) * row / (kLogitRows - 1), col);
                            });
                          },
                          [](const auto& /*c*/) {}},
               op);
  }

  RowSplit split;
  Tensor residual, attention, delta, normed, hidden, qkv, last;
  StepMemory needed;  // by the last step, with Memory::kPlanned

 private:
  std::byte* Take(size_t bytes) {
    std::byte* const at = memory_.data() + used_;
    used_ += (bytes + 255) / 256 * 256;
    EXPECT_LE(used_, memory_.size());
    return at;
  }
  Tensor Numbers(DType dtype, int64_t rows) {
    const auto bytes = static_cast<size_t>(rows * kCols) * ShapeOf(dtype).bytes;
    return {Take(bytes), dtype, rows, kCols, kCols};
  }

  // Each value has memory of its own until BindMemory.
  void Renew(Tensor& x) {
    if (!space_) return;
    const ValueUse use = {.dtype = x.dtype, .rows = x.rows, .cols = x.cols};
    x = space_->Place({&use, 1}).front();
  }

  StepOp NormOf(const Tensor& added) const {
    NormOp norm;
    norm.residual = residual;
    if (added.data != nullptr) norm.input = DeltaInput{added};
    norm.out = normed;
    return norm;
  }
  void Attend(std::vector<StepOp>& ops) const {
    RopeOp rope;
    rope.qkv = qkv;
    AttentionOp attend;
    attend.qkv = qkv;
    attend.out = Mine(attention);
    ops.insert(ops.end(), {AnglesOp{}, rope, attend});
  }
  bool gathers() const { return model_ == Model::kGather || model_ == Model::kGatherFp8; }
  // The columns that this rank computes.
  Tensor Mine(const Tensor& whole) const {
    if (!gathers()) return whole;
    const int64_t first = rank_ == 0 ? 0 : ends_[static_cast<size_t>(rank_) - 1];
    return whole.Columns(first, ends_[static_cast<size_t>(rank_)] - first);
  }
  void Gather(std::vector<StepOp>& ops, const Tensor& whole) const {
    if (!gathers()) return;
    ops.emplace_back(ExchangeOp(
        GatherColumnsOp{.whole = whole, .ends = ends_, .to_all = true, .slot_buffer = 0}));
  }
  void Join(std::vector<StepOp>& ops, const Tensor& whole) const {
    if (gathers()) return Gather(ops, whole);
    ops.emplace_back(ExchangeOp(ReduceOp{.x = whole, .ranks = split.ranks, .slot_buffer = 0}));
  }
  void Project(std::vector<StepOp>& ops, const Tensor& out) { Multiply(ops, normed, out, 1); }
  void FeedForward(std::vector<StepOp>& ops) {
    if (model_ == Model::kMixture) {
      ops.emplace_back(ExpertsOp{.x = normed, .experts = {}, .out = delta});
      return;
    }
    Multiply(ops, normed, Mine(hidden), 1);
    Gather(ops, hidden);
    Multiply(ops, hidden, Mine(delta), 0);
  }
  // Lists a GEMM, as CudaOps does.
  void Multiply(std::vector<StepOp>& ops, const Tensor& x, const Tensor& out, size_t buffer) {
    GemmProblem problem;
    problem.x = x.data;
    problem.out = out.data;
    problem.rows = kRows;
    problem.n = static_cast<int32_t>(out.cols);
    problem.k = kCols;
    problem.x_stride = problem.out_stride = kCols;
    // The number of the first output, in a member that these GEMMs do not use.
    const bool all = out.cols == kCols || rank_ == 0;
    problem.norm_epsilon = all ? 0 : static_cast<float>(ends_[static_cast<size_t>(rank_) - 1]);
    const bool fp8 = model_ == Model::kFp8 || model_ == Model::kGatherFp8;
    if (fp8) {
      Fp8Rows& rows = quantized_[buffer];
      if (space_) {
        rows = Fp8Rows::At(space_->Scratch(Fp8Rows::Bytes(kRows, kCols)), kRows, kCols);
      }
      ops.emplace_back(QuantizeOp{x, rows});
      problem.x = rows.data;
      problem.x_dtype = problem.weight_dtype = DType::kFp8;
    }
    ops.emplace_back(MatMulOp{problem});
    if (fp8) ops.emplace_back(RescaleOp{out, {quantized_[buffer].scales, nullptr}});
  }

  float Mixed(float x, int64_t col) const {
    const int factor = gathers() ? 2 : 2 + rank_;
    return std::fmod(x * static_cast<float>(factor) + static_cast<float>(col), 53.0f);
  }
  void Embed(const EmbedOp& c) const {
    ForNumbers(c.out, [&](int64_t row, int64_t col) {
      return static_cast<float>((row * 7 + col + c.first_token) % 50);
    });
  }
  static void Norm(const NormOp& c) {
    Tensor out = c.out;
    for (int64_t row = 0; row < c.residual.rows; ++row) {
      for (int64_t col = 0; col < kCols; ++col) {
        float value = Get(c.residual, row, col);
        value += InputOf(c, row, col);
        Set(c.residual, row, col, value);
        Set(out, row, col, std::fmod(value, 47.0f));
      }
    }
  }
  static float InputOf(const NormOp& c, int64_t row, int64_t col) {
    // An element of a tensor without gaps that begins `offset` elements after `first`.
    const auto part = [&](Tensor first, int64_t offset, int64_t column, int64_t cols) {
      first.data += offset * 2;
      first.cols = first.stride = cols;
      return Get(first, row, column);
    };
    return std::visit(
        Overloaded{
            [&](const DeltaInput& one) { return Get(one.delta, row, col); },
            [&](const PartsInput& sum) {
              float total = 0;
              for (int32_t i = 0; i < sum.parts; ++i) {
                total += part(sum.first, sum.offsets[static_cast<size_t>(i)], col, kCols);
              }
              return total;
            },
            [&](const PackedColumnsInput& columns) {
              size_t rank = 0;
              while (col >= columns.ends[rank]) ++rank;
              const int64_t first = rank == 0 ? 0 : columns.ends[rank - 1];
              return part(
                  columns.mine, columns.offsets[rank], col - first, columns.ends[rank] - first);
            },
            [](const auto& /*other*/) { return 0.0f; }},
        c.input);
  }
  // A row's scale tells from which row the numbers are.
  static void Quantize(const QuantizeOp& c) {
    for (int64_t row = 0; row < c.x.rows; ++row) {
      for (int64_t col = 0; col < kCols; ++col) {
        c.out.data[row * kCols + col] = static_cast<std::byte>(Get(c.x, row, col));
      }
      c.out.scales[row] = Get(c.x, row, 0) + 1;
    }
  }
  static void Rescale(const RescaleOp& c) {
    ForNumbers(c.x, [&](int64_t row, int64_t col) {
      return std::fmod(Get(c.x, row, col) * c.scales.rows[row], 43.0f);
    });
  }
  void Multiply(const GemmProblem& problem) const {
    const Tensor out = {static_cast<std::byte*>(problem.out),
                        DType::kBF16,
                        problem.rows,
                        problem.n,
                        problem.out_stride};
    const auto first = static_cast<int64_t>(problem.norm_epsilon);
    const auto* const x = static_cast<const std::byte*>(problem.x);
    ForNumbers(out, [&](int64_t row, int64_t col) {
      const int64_t at = row * kCols + (first + col + 1) % kCols;
      const float value = problem.x_dtype == DType::kFp8
                              ? static_cast<float>(x[at])
                              : BrainToFloat(reinterpret_cast<const uint16_t*>(x)[at]);
      return Mixed(value, first + col);
    });
  }

  const int rank_;
  const Model model_;
  std::vector<std::byte> memory_;
  size_t used_ = 0;
  std::optional<ValueSpace> space_;
  std::array<Fp8Rows, 2> quantized_;
  std::vector<int64_t> ends_;  // of the columns of each rank
};

}  // namespace baton::cuda
