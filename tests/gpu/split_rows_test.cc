#include "kernels/cuda/step/split_rows.h"

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/overloaded.h"

// How the ops of a long prompt between two attention ops are divided, on two tensor ranks.
namespace baton::cuda {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr int64_t kRows = 5000;
constexpr int64_t kHalf = 2560;
constexpr int64_t kCols = 64;
constexpr int64_t kBytes = 2;  // of a number

class SplitRowsTest : public testing::Test {
 protected:
  SplitRowsTest() : memory_(8 * kRows * kCols * kBytes) {
    for (size_t i = 0; i < split_.places.size(); ++i) {
      split_.places[i] = memory_.data() + (4 + i) * kHalf * kCols * kBytes;
    }
    split_.place_bytes = kHalf * kCols * kBytes;
  }

  Tensor At(int64_t buffer, int64_t rows = kRows) {
    return {memory_.data() + buffer * rows * kCols * kBytes, DType::kBF16, rows, kCols, kCols};
  }
  Tensor delta() { return At(0); }
  Tensor normed() { return At(1); }

  StepOp Multiply(const Tensor& x, const Tensor& out) const {
    GemmProblem problem;
    problem.x = x.data;
    problem.out = out.data;
    problem.rows = static_cast<int32_t>(x.rows);
    problem.n = problem.k = kCols;
    problem.x_stride = problem.out_stride = kCols;
    return MatMulOp{problem};
  }
  static StepOp Sum(const Tensor& x, int32_t half) {
    return ExchangeOp(ReduceOp{.x = x, .ranks = 2, .half = half});
  }
  StepOp Norm(int64_t rows = kRows) {
    Tensor residual = At(0, rows);
    residual.dtype = DType::kF32;
    NormOp norm;
    norm.residual = residual;
    norm.delta = delta().Rows(0, rows);
    norm.out = normed().Rows(0, rows);
    return norm;
  }
  // Attention output, its sum, the feed-forward, its sum, and the next layer's q, k and v.
  std::vector<StepOp> Layer() {
    return {AttentionOp{},
            Multiply(normed(), delta()),
            Sum(delta(), 0),
            NotifyOp{7},
            Norm(),
            Multiply(normed(), delta()),
            Sum(delta(), 1),
            Norm(),
            Multiply(normed(), normed()),
            RopeOp{}};
  }

  // The names of the ops, with their first row and the place that they use.
  static std::vector<std::string> Names(const std::vector<StepOp>& ops, const Tensor& origin) {
    std::vector<std::string> names;
    const auto row = [&](const void* data) {
      const auto* const byte = static_cast<const std::byte*>(data);
      return std::to_string((byte - origin.data) / (kCols * kBytes) % kRows);
    };
    const auto exchange =
        Overloaded{[&](const CopyPartOp& c) {
                     return "copy " + row(c.part.data) + " to " + std::to_string(c.place) +
                            " half " + std::to_string(c.half);
                   },
                   [&](const AwaitPartOp& c) { return "await " + std::to_string(c.place); },
                   [&](const ReduceOp& c) { return "sum half " + std::to_string(c.half); },
                   [&](const BarrierOp& c) { return "barrier half " + std::to_string(c.half); },
                   [](const auto& /*c*/) { return std::string("exchange"); }};
    for (const StepOp& op : ops) {
      names.push_back(std::visit(
          Overloaded{[&](const MatMulOp& c) { return "gemm " + row(c.problem.x); },
                     [&](const NormOp& c) { return "norm " + row(c.out.data); },
                     [&](const NotifyOp& c) { return "notify " + std::to_string(c.index); },
                     [&](const ExchangeOp& c) { return std::visit(exchange, c); },
                     [](const AttentionOp& /*c*/) { return std::string("attention"); },
                     [](const RopeOp& /*c*/) { return std::string("rope"); },
                     [](const auto& /*c*/) { return std::string("other"); }},
          op));
    }
    return names;
  }
  std::vector<std::string> Split(std::vector<StepOp> ops) {
    SplitRows(ops, kRows, split_);
    return Names(ops, At(0));
  }

  std::vector<std::byte> memory_;
  RowSplit split_;
};

TEST_F(SplitRowsTest, OneHalfIsComputedWhileTheOtherMoves) {
  EXPECT_THAT(Split(Layer()),
              ElementsAre("attention",
                          "gemm 0",
                          "copy 0 to 0 half 0",
                          "gemm 2560",
                          "copy 2560 to 1 half 1",
                          "await 0",
                          "norm 0",
                          "gemm 0",
                          "copy 0 to 2 half 0",
                          "await 1",
                          "notify 7",
                          "norm 2560",
                          "gemm 2560",
                          "copy 2560 to 3 half 1",
                          "await 2",
                          "norm 0",
                          "gemm 0",
                          "await 3",
                          "norm 2560",
                          "gemm 2560",
                          "rope"));
}

TEST_F(SplitRowsTest, ANormAddsTheParts) {
  for (const int32_t rank : {0, 1}) {
    split_.rank = rank;
    std::vector<StepOp> ops = Layer();
    SplitRows(ops, kRows, split_);
    const auto& second = std::get<NormOp>(ops[11]);
    ASSERT_EQ(second.residual.rows, kRows - kHalf);
    const std::byte* const own = delta().Rows(kHalf, 1).data;
    const std::byte* const received = split_.places[1];
    const std::byte* const parts[] = {second.delta.data,
                                      second.delta.data + second.delta_part * kBytes};
    EXPECT_EQ(second.delta_parts, 2);
    EXPECT_THAT(parts, rank == 0 ? ElementsAre(own, received) : ElementsAre(received, own));
  }
}

// Large sums are listed as sums of ranges of rows.
TEST_F(SplitRowsTest, ASumOfSeveralRangesIsOneSum) {
  std::vector<StepOp> ops = Layer();
  ops[2] = Sum(delta().Rows(0, 3000), 0);
  ops.insert(ops.begin() + 3, Sum(delta().Rows(3000, 2000), 1));
  std::get<ReduceOp>(std::get<ExchangeOp>(ops[7])).half = 0;
  EXPECT_EQ(Split(ops), Split(Layer()));
}

TEST_F(SplitRowsTest, LaterExchangesUseTheHalvesInTurn) {
  std::vector<StepOp> ops = Layer();
  ops.erase(ops.begin() + 6, ops.begin() + 9);  // one sum is left
  ops.push_back(Sum(delta(), 1));
  const std::vector<std::string> names = Split(ops);
  EXPECT_EQ(names[names.size() - 2], "sum half 0");
  EXPECT_EQ(names.back(), "barrier half 1");
}

TEST_F(SplitRowsTest, OtherStepsStayAsTheyAre) {
  const auto stays = [&](const std::vector<StepOp>& ops) {
    EXPECT_THAT(Split(ops), ElementsAreArray(Names(ops, At(0))));
  };
  std::vector<StepOp> ops = Layer();
  ops[4] = Norm(12);  // only the logit rows
  ops.erase(ops.begin() + 5, ops.begin() + 8);
  ops.push_back(ExchangeOp(BarrierOp{.half = 1}));
  stays(ops);
  ops = Layer();
  std::get<ReduceOp>(std::get<ExchangeOp>(ops[2])).x.dtype = DType::kF32;
  std::get<ReduceOp>(std::get<ExchangeOp>(ops[6])).x.dtype = DType::kF32;
  stays(ops);
  split_.place_bytes /= 2;
  stays(Layer());
  split_.place_bytes = 0;
  stays(Layer());
  split_.place_bytes = memory_.size();
  ops = Layer();
  SplitRows(ops, 2047, split_);
  EXPECT_THAT(Names(ops, At(0)), ElementsAreArray(Names(Layer(), At(0))));
}

}  // namespace
}  // namespace baton::cuda
