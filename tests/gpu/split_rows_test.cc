#include "kernels/cuda/graph/split_rows.h"

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
constexpr int64_t kSlice = 1220;  // of the second half
constexpr int64_t kCols = 64;
constexpr int64_t kBytes = 2;  // of a number
constexpr int64_t kBuffers = 5;
constexpr int64_t kResidual =
    3 * kRows;  // rows of bf16 before the residual, which takes two buffers

class SplitRowsTest : public testing::Test {
 protected:
  SplitRowsTest() : memory_((kBuffers * kRows + 4 * kHalf) * kCols * kBytes) {
    for (size_t i = 0; i < split_.put_buffers.size(); ++i) {
      split_.put_buffers[i] = memory_.data() + (kBuffers * kRows + i * kHalf) * kCols * kBytes;
    }
    split_.put_buffer_bytes = kHalf * kCols * kBytes;
    split_.ranks = 2;
  }

  Tensor At(int64_t buffer, int64_t rows = kRows) {
    return {memory_.data() + buffer * rows * kCols * kBytes, DType::kBF16, rows, kCols, kCols};
  }
  Tensor delta() { return At(0); }
  Tensor normed() { return At(1); }
  Tensor hidden() { return At(2); }

  Tensor residual() {
    Tensor residual = At(3);
    residual.dtype = DType::kF32;
    return residual;
  }

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
    return ExchangeOp(ReduceOp{.x = x, .ranks = 2, .slot_buffer = half});
  }
  StepOp Norm(int64_t rows = kRows) {
    NormOp norm;
    norm.residual = residual().Rows(0, rows);
    norm.input = DeltaInput{delta().Rows(0, rows)};
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
            Multiply(normed(), hidden()),
            Multiply(hidden(), delta()),
            Sum(delta(), 1),
            Norm(),
            Multiply(normed(), hidden()),
            RopeOp{}};
  }

  // A row of a buffer, of the residual or of a place.
  std::string Name(const void* data) const {
    const auto row = (static_cast<const std::byte*>(data) - memory_.data()) / (kCols * kBytes);
    const int64_t in_places = row - kBuffers * kRows;
    if (row >= kResidual && in_places < 0)
      return "residual " + std::to_string((row - kResidual) / 2);
    if (in_places < 0) return std::to_string(row % kRows);
    return "place " + std::to_string(in_places / kHalf) + "+" + std::to_string(in_places % kHalf);
  }
  std::vector<std::string> Names(const std::vector<StepOp>& ops) const {
    std::vector<std::string> names;
    const auto exchange = Overloaded{
        [&](const PutOp& c) {
          return "put " + Name(c.puts[0].copy.from) + " to " + Name(c.puts[0].copy.to) + " half " +
                 std::to_string(c.slot_buffer);
        },
        [&](const AwaitPutOp& c) { return "await " + std::to_string(c.put_buffer); },
        [&](const ReduceOp& c) { return "sum half " + std::to_string(c.slot_buffer); },
        [&](const BarrierOp& c) { return "barrier half " + std::to_string(c.slot_buffer); },
        [](const auto& /*c*/) { return std::string("exchange"); }};
    for (const StepOp& op : ops) {
      names.push_back(std::visit(
          Overloaded{[&](const MatMulOp& c) {
                       return "gemm " + Name(c.problem.x) + " of " + std::to_string(c.problem.rows);
                     },
                     [&](const NormOp& c) {
                       const Tensor& input = *TensorIn(c.input);
                       return "norm " + Name(input.data) + " of " + std::to_string(input.rows) +
                              " to " + Name(c.out.data);
                     },
                     [&](const NotifyOp& c) { return "notify " + std::to_string(c.index); },
                     [&](const ExchangeOp& c) { return std::visit(exchange, c); },
                     [](const AttentionOp& /*c*/) { return std::string("attention"); },
                     [](const RescaleOp& /*c*/) { return std::string("rescale"); },
                     [](const RopeOp& /*c*/) { return std::string("rope"); },
                     [](const GatherOp& /*c*/) { return std::string("gather"); },
                     [](const auto& /*c*/) { return std::string("other"); }},
          op));
    }
    return names;
  }
  std::vector<std::string> Split(std::vector<StepOp> ops) {
    SplitRows(ops, kRows, split_);
    return Names(ops);
  }

  std::vector<std::byte> memory_;
  RowSplit split_;
};

TEST_F(SplitRowsTest, OneHalfIsComputedWhileTheOtherMoves) {
  const std::vector<std::string> want = {"attention",
                                         "gemm 0 of 2560",
                                         "put 1280 to place 0+0 half 0",
                                         "gemm 2560 of 1280",
                                         "await 0",
                                         "norm 0 of 1280 to place 1+0",
                                         "put place 1+0 to place 1+0 half 1",
                                         "gemm 3840 of 1160",
                                         "put 3780 to place 2+0 half 0",
                                         "await 1",
                                         "gemm place 1+0 of 2560",
                                         "await 2",
                                         "notify 7",
                                         "norm 2560 of 1220 to place 3+0",
                                         "put place 3+0 to place 3+0 half 1",
                                         "gemm 0 of 2560",
                                         "put 1280 to place 0+0 half 0",
                                         "await 3",
                                         "gemm place 3+0 of 2440",
                                         "await 0",
                                         "norm 0 of 1280 to place 1+0",
                                         "put place 1+0 to place 1+0 half 1",
                                         "gemm 2560 of 2440",
                                         "put 3780 to place 2+0 half 0",
                                         "await 1",
                                         "gemm place 1+0 of 1280",
                                         "await 2",
                                         "norm 2560 of 1220 to place 3+0",
                                         "put place 3+0 to place 3+0 half 1",
                                         "gemm place 1+1280 of 1280",
                                         "await 3",
                                         "gemm place 3+0 of 2440",
                                         "rope"};
  EXPECT_THAT(Split(Layer()), ElementsAreArray(want));
}

TEST_F(SplitRowsTest, ANormAddsThePartsOfASlice) {
  for (const int32_t rank : {0, 1}) {
    split_.rank = rank;
    std::vector<StepOp> ops = Layer();
    SplitRows(ops, kRows, split_);
    const NormOp* second = nullptr;  // of the second half
    for (const StepOp& op : ops) {
      const auto* const norm = std::get_if<NormOp>(&op);
      const bool is_second =
          norm != nullptr && norm->residual.data >= residual().Rows(kHalf, 1).data;
      if (is_second && second == nullptr) second = norm;
    }
    ASSERT_NE(second, nullptr);
    const int64_t first = rank == 0 ? kHalf : kHalf + kSlice;
    EXPECT_EQ(second->residual, residual().Rows(first, kSlice));
    const std::byte* const own = delta().Rows(first, 1).data;
    const std::byte* const received = split_.put_buffers[2];
    const auto& sum = std::get<PartsInput>(second->input);
    const auto part = [&](size_t of) { return sum.first.data + sum.offsets[of] * kBytes; };
    EXPECT_EQ(sum.parts, 2);
    EXPECT_EQ(part(rank == 0 ? 0 : 1), own);
    EXPECT_EQ(part(rank == 0 ? 1 : 0), received);
  }
}

// A rank has the residual of its slices alone until an op reads it.
TEST_F(SplitRowsTest, TheResidualIsExchangedBeforeItIsRead) {
  std::vector<StepOp> ops = Layer();
  // A rescaling can be fused into the op behind it.
  ops.insert(ops.end() - 1, RescaleOp{.x = hidden()});
  ops.insert(ops.end(), {AttentionOp{}, GatherOp{.x = hidden(), .out = delta()}});
  const size_t before = Split(ops).size();
  ops.push_back(GatherOp{.x = residual(), .out = delta()});
  const std::vector<std::string> names = Split(ops);
  ASSERT_EQ(names.size(), before + 5);
  EXPECT_THAT(std::vector(names.end() - 9, names.end()),
              ElementsAre("put residual 0 to place 2+0 half 0",
                          "put residual 2560 to place 3+0 half 1",
                          "rescale",
                          "rope",
                          "attention",
                          "gather",
                          "await 2",
                          "await 3",
                          "gather"));
}

// No exchange begins while copies are under way.
TEST_F(SplitRowsTest, TheResidualArrivesBeforeAnotherExchange) {
  std::vector<StepOp> ops = Layer();
  const ExchangeOp gather =
      GatherColumnsOp{.whole = hidden(), .ends = {32, 64}, .to_all = true, .slot_buffer = 0};
  ops.insert(ops.end(), {AttentionOp{}, gather, GatherOp{.x = residual(), .out = delta()}});
  const std::vector<std::string> names = Split(ops);
  EXPECT_THAT(std::vector(names.end() - 9, names.end()),
              ElementsAre("put residual 0 to place 2+0 half 0",
                          "put residual 2560 to place 3+0 half 1",
                          "rope",
                          "attention",
                          "await 2",
                          "await 3",
                          "exchange",
                          "gather",
                          "barrier half 1"));
}

// Large sums are listed as sums of ranges of rows.
TEST_F(SplitRowsTest, ASumOfSeveralRangesIsOneSum) {
  std::vector<StepOp> ops = Layer();
  ops[2] = Sum(delta().Rows(0, 3000), 0);
  ops.insert(ops.begin() + 3, Sum(delta().Rows(3000, 2000), 1));
  std::get<ReduceOp>(std::get<ExchangeOp>(ops[8])).slot_buffer = 0;
  EXPECT_EQ(Split(ops), Split(Layer()));
}

TEST_F(SplitRowsTest, LaterExchangesUseTheHalvesInTurn) {
  std::vector<StepOp> ops = Layer();
  ops.erase(ops.begin() + 7, ops.begin() + 10);  // one sum is left
  ops.push_back(Sum(delta(), 1));
  const std::vector<std::string> names = Split(ops);
  EXPECT_EQ(names[names.size() - 2], "sum half 0");
  EXPECT_EQ(names.back(), "barrier half 1");
}

TEST_F(SplitRowsTest, OtherStepsStayAsTheyAre) {
  const auto stays = [&](const std::vector<StepOp>& ops) {
    EXPECT_THAT(Split(ops), ElementsAreArray(Names(ops)));
  };
  std::vector<StepOp> ops = Layer();
  ops[4] = Norm(12);  // only the logit rows
  ops.erase(ops.begin() + 5, ops.begin() + 9);
  ops.push_back(ExchangeOp(BarrierOp{.slot_buffer = 1}));
  stays(ops);
  ops = Layer();
  std::get<ReduceOp>(std::get<ExchangeOp>(ops[2])).x.dtype = DType::kF32;
  std::get<ReduceOp>(std::get<ExchangeOp>(ops[7])).x.dtype = DType::kF32;
  stays(ops);
  split_.put_buffer_bytes /= 2;
  stays(Layer());
  // Experts on more than two ranks.
  split_.put_buffer_bytes = memory_.size();
  split_.ranks = 3;
  ops = Layer();
  ops[5] = ExpertsOp{.x = normed(), .experts = {}, .out = delta()};
  ops.erase(ops.begin() + 6);
  stays(ops);
  split_.ranks = 2;
  split_.put_buffer_bytes = 0;
  stays(Layer());
  split_.put_buffer_bytes = memory_.size();
  ops = Layer();
  SplitRows(ops, 2047, split_);
  EXPECT_THAT(Names(ops), ElementsAreArray(Names(Layer())));
}

}  // namespace
}  // namespace baton::cuda
