#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/overloaded.h"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/step/split_rows.h"

// What tensor ranks compute when their ops are split, with every order in which the ops of the
// ranks and the copies between them can run. Ops are arithmetic on small whole numbers, which bf16
// and float32 hold exactly, so that the results equal those of the ops that are not split.
namespace baton::cuda {
namespace {

constexpr int64_t kRows = 4200;
constexpr int64_t kHalf = 2304;
constexpr int64_t kCols = 4;
constexpr int kSteps = 2;  // one behind the other
constexpr int kLayers = 3;
constexpr int64_t kLogitRows = 16;

enum class Model { kBf16, kFp8, kMixture };

uint16_t ToBf16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}
float FromBf16(uint16_t value) {
  const uint32_t bits = uint32_t{value} << 16;
  float result = 0;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

float Get(const Tensor& x, int64_t row, int64_t col) {
  const auto at = static_cast<size_t>(row * x.stride + col);
  if (x.dtype == DType::kF32) return reinterpret_cast<const float*>(x.data)[at];
  return FromBf16(reinterpret_cast<const uint16_t*>(x.data)[at]);
}
void Set(const Tensor& x, int64_t row, int64_t col, float value) {
  const auto at = static_cast<size_t>(row * x.stride + col);
  if (x.dtype == DType::kF32) {
    reinterpret_cast<float*>(x.data)[at] = value;
  } else {
    reinterpret_cast<uint16_t*>(x.data)[at] = ToBf16(value);
  }
}
template <class Function>
void ForNumbers(const Tensor& x, const Function& function) {
  for (int64_t row = 0; row < x.rows; ++row) {
    for (int64_t col = 0; col < x.cols; ++col) Set(x, row, col, function(row, col));
  }
}

// The memory of a rank and its ops.
class Rank {
 public:
  Rank(int rank, int ranks, Model model) : rank_(rank), model_(model), memory_(size_t{2} << 20) {
    split.rank = rank;
    split.ranks = ranks;
    // A place holds the half's activations, or the other ranks' part of its residual.
    split.place_bytes = static_cast<size_t>(
        std::max(kHalf * 2, CeilDiv(kHalf, ranks) * int64_t{ranks - 1} * 4) * kCols);
    for (std::byte*& place : split.places) place = Take(split.place_bytes);
    split.scales = reinterpret_cast<float*>(Take(kRows * sizeof(float)));
    residual = Numbers(DType::kF32, kRows);
    for (Tensor* const x : {&attention, &delta, &normed, &hidden, &qkv}) {
      *x = Numbers(DType::kBF16, kRows);
    }
    last = Numbers(DType::kF32, kSteps * kLogitRows);
    for (Fp8Rows& rows : quantized_) {
      rows = Fp8Rows::At(Take(Fp8Rows::Bytes(kRows, kCols)), kRows, kCols);
    }
  }
  Rank(const Rank&) = delete;

  // The ops of all steps. Each step leaves some rows of the residual in `last`.
  std::vector<StepOp> List(bool split_rows) {
    std::vector<StepOp> all;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<StepOp> ops = {EmbedOp{.first_token = step, .out = residual}, NormOf({})};
      Project(ops, qkv);
      for (int layer = 0; layer < kLayers; ++layer) {
        Attend(ops);
        Multiply(ops, attention, delta, 0);
        ListSum(ops);
        ops.emplace_back(NotifyOp{static_cast<size_t>(layer)});
        ops.push_back(NormOf(delta));
        FeedForward(ops);
        ListSum(ops);
        ops.push_back(NormOf(delta));
        Project(ops, qkv);
      }
      Attend(ops);
      ops.emplace_back(GatherOp{.x = residual, .out = last.Rows(step * kLogitRows, kLogitRows)});
      if (split_rows) SplitRows(ops, kRows, split);
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

  StepOp NormOf(const Tensor& added) const {
    NormOp norm;
    norm.residual = residual;
    norm.delta = added;
    norm.out = normed;
    return norm;
  }
  void Attend(std::vector<StepOp>& ops) const {
    RopeOp rope;
    rope.qkv = qkv;
    AttentionOp attend;
    attend.qkv = qkv;
    attend.out = attention;
    ops.insert(ops.end(), {AnglesOp{}, rope, attend});
  }
  void ListSum(std::vector<StepOp>& ops) const {
    ops.emplace_back(ExchangeOp(ReduceOp{.x = delta, .ranks = split.ranks, .half = 0}));
  }
  void Project(std::vector<StepOp>& ops, const Tensor& out) const { Multiply(ops, normed, out, 1); }
  void FeedForward(std::vector<StepOp>& ops) const {
    if (model_ == Model::kMixture) {
      ops.emplace_back(ExpertsOp{.x = normed, .experts = {}, .out = delta});
      return;
    }
    Multiply(ops, normed, hidden, 1);
    Multiply(ops, hidden, delta, 0);
  }
  // Lists a GEMM, as CudaOps does.
  void Multiply(std::vector<StepOp>& ops, const Tensor& x, const Tensor& out, size_t buffer) const {
    GemmProblem problem;
    problem.x = x.data;
    problem.out = out.data;
    problem.rows = kRows;
    problem.n = problem.k = kCols;
    problem.x_stride = problem.out_stride = kCols;
    if (model_ == Model::kFp8) {
      const Fp8Rows& rows = quantized_[buffer];
      ops.emplace_back(QuantizeOp{x, rows});
      problem.x = rows.data;
      problem.x_dtype = problem.weight_dtype = DType::kFp8;
    }
    ops.emplace_back(MatMulOp{problem});
    if (model_ == Model::kFp8)
      ops.emplace_back(RescaleOp{out, {quantized_[buffer].scales, nullptr}});
  }

  float Mixed(float x, int64_t col) const {
    return std::fmod(x * static_cast<float>(2 + rank_) + static_cast<float>(col), 53.0f);
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
        for (int32_t i = 0; c.delta.data != nullptr && i < c.delta_parts; ++i) {
          Tensor part = c.delta;
          part.data += c.part_offsets[static_cast<size_t>(i)] * 2;
          value += Get(part, row, col);
        }
        Set(c.residual, row, col, value);
        Set(out, row, col, std::fmod(value, 47.0f));
      }
    }
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
    const Tensor out = {
        static_cast<std::byte*>(problem.out), DType::kBF16, problem.rows, kCols, kCols};
    const auto* const x = static_cast<const std::byte*>(problem.x);
    ForNumbers(out, [&](int64_t row, int64_t col) {
      const int64_t at = row * kCols + (col + 1) % kCols;
      const float value = problem.x_dtype == DType::kFp8
                              ? static_cast<float>(x[at])
                              : FromBf16(reinterpret_cast<const uint16_t*>(x)[at]);
      return Mixed(value, col);
    });
  }

  const int rank_;
  const Model model_;
  std::vector<std::byte> memory_;
  size_t used_ = 0;
  std::array<Fp8Rows, 2> quantized_;
};

// Ranks whose ops run on a stream each, and whose copies run on another one each.
class Ranks {
 public:
  Ranks(int count, Model model) : ops_(At(count)), next_(At(count)), puts_(At(count)) {
    for (int rank = 0; rank < count; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(rank, count, model));
    }
    copied_.resize(ranks_.size());
    ended_.resize(ranks_.size());
  }

  void RunWhole() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) ops_[rank] = ranks_[rank]->List(false);
    for (size_t i = 0; i < ops_[0].size(); ++i) {
      for (size_t rank = 0; rank < ranks_.size(); ++rank) ranks_[rank]->Run(ops_[rank][i]);
      if (std::holds_alternative<ExchangeOp>(ops_[0][i])) AddDeltas();
    }
  }

  // In each turn a stream goes on, which is chosen at random: stream i with weight weights[i]. The
  // streams of ops come before those of copies.
  testing::AssertionResult RunSplit(const std::vector<double>& weights, std::mt19937& random) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) ops_[rank] = ranks_[rank]->List(true);
    std::vector<double> left = weights;
    while (!AllEnded()) {
      const auto stream =
          static_cast<size_t>(std::discrete_distribution<int>(left.begin(), left.end())(random));
      if (left[stream] == 0) return testing::AssertionFailure() << "no stream goes on";
      const size_t rank = stream % ranks_.size();
      const bool ran = stream < ranks_.size() ? RunOp(rank) : RunPut(rank);
      left = ran ? weights : left;
      if (!ran) left[stream] = 0;
    }
    return testing::AssertionSuccess();
  }

  const Rank& operator[](size_t rank) const { return *ranks_[rank]; }
  size_t size() const { return ranks_.size(); }

 private:
  struct IssuedPut {
    PutOp op;
    bool copied = false;
  };

  static size_t At(int count) { return static_cast<size_t>(count); }

  void AddDeltas() {
    ForNumbers(ranks_[0]->delta, [&](int64_t row, int64_t col) {
      float sum = 0;
      for (const auto& rank : ranks_) sum += Get(rank->delta, row, col);
      for (const auto& rank : ranks_) Set(rank->delta, row, col, sum);
      return sum;
    });
  }

  bool AllEnded() const {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (next_[rank] < ops_[rank].size() || !puts_[rank].empty()) return false;
    }
    return true;
  }

  bool RunOp(size_t rank) {
    if (next_[rank] == ops_[rank].size()) return false;
    const StepOp& op = ops_[rank][next_[rank]];
    if (const auto* const exchange = std::get_if<ExchangeOp>(&op)) {
      if (const auto* const put = std::get_if<PutOp>(exchange)) {
        puts_[rank].push_back({*put});
      } else if (const auto* const await = std::get_if<AwaitPutOp>(exchange)) {
        const bool ended = std::ranges::none_of(
            puts_[rank], [&](const IssuedPut& one) { return one.op.place == await->place; });
        if (!ended) return false;
        for (const ByteCopy& copy : await->copies) std::memcpy(copy.to, copy.from, copy.bytes);
      } else {
        ADD_FAILURE() << "an exchange that is not split";
      }
    }
    ranks_[rank]->Run(op);
    ++next_[rank];
    return true;
  }

  // Copies, or ends the put when the other ranks' have been copied, too.
  bool RunPut(size_t rank) {
    if (puts_[rank].empty()) return false;
    IssuedPut& put = puts_[rank].front();
    if (put.copied) {
      const size_t index = ended_[rank];
      if (std::ranges::any_of(copied_, [&](size_t copied) { return copied <= index; }))
        return false;
      ++ended_[rank];
      puts_[rank].pop_front();
      return true;
    }
    for (const auto& [copy, to] : put.op.puts) {
      EXPECT_NE(static_cast<size_t>(to), rank);
      std::memcpy(On(static_cast<size_t>(to), rank, copy.to, copy.bytes), copy.from, copy.bytes);
    }
    put.copied = true;
    ++copied_[rank];
    return true;
  }

  // What rank `other` has at the address that rank `rank` calls `at`.
  std::byte* On(size_t other, size_t rank, const std::byte* at, size_t bytes) const {
    const RowSplit& own = ranks_[rank]->split;
    const RowSplit& of_other = ranks_[other]->split;
    for (size_t place = 0; place < own.places.size(); ++place) {
      const auto offset = static_cast<size_t>(at - own.places[place]);
      if (at < own.places[place] || offset + bytes > own.place_bytes) continue;
      return of_other.places[place] + offset;
    }
    const auto offset = at - reinterpret_cast<const std::byte*>(own.scales);
    EXPECT_TRUE(offset >= 0 && offset + static_cast<int64_t>(bytes) <= kRows * 4) << offset;
    return reinterpret_cast<std::byte*>(of_other.scales) + offset;
  }

  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::vector<StepOp>> ops_;
  std::vector<size_t> next_;
  std::vector<std::deque<IssuedPut>> puts_;
  std::vector<size_t> copied_;
  std::vector<size_t> ended_;
};

std::vector<std::byte> BytesOf(const Tensor& x) {
  return {x.data, x.data + PackedBytes(x)};
}

class SplitRowsRunTest : public testing::TestWithParam<std::tuple<Model, int>> {};
INSTANTIATE_TEST_SUITE_P(Dense,
                         SplitRowsRunTest,
                         testing::Combine(testing::Values(Model::kBf16, Model::kFp8),
                                          testing::Values(2, 3, 4)));
// More than two ranks do not split the steps of a mixture.
INSTANTIATE_TEST_SUITE_P(Mixture,
                         SplitRowsRunTest,
                         testing::Values(std::tuple(Model::kMixture, 2)));

TEST_P(SplitRowsRunTest, AnyOrderGivesTheResultsOfWholeOps) {
  const auto& [model, count] = GetParam();
  Ranks whole(count, model);
  whole.RunWhole();
  std::mt19937 random(5);
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    // Ops of one rank, or copies, can be far behind the others.
    std::vector<double> weights(2 * whole.size());
    for (double& weight : weights) weight = std::exp2(-static_cast<double>(random() % 9));
    Ranks split(count, model);
    ASSERT_TRUE(split.RunSplit(weights, random));
    for (size_t rank = 0; rank < split.size(); ++rank) {
      SCOPED_TRACE(rank);
      ASSERT_EQ(BytesOf(split[rank].qkv), BytesOf(whole[rank].qkv));
      ASSERT_EQ(BytesOf(split[rank].residual), BytesOf(whole[rank].residual));
      ASSERT_EQ(BytesOf(split[rank].last), BytesOf(whole[rank].last));
    }
  }
}

}  // namespace
}  // namespace baton::cuda
