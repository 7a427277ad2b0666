#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/overloaded.h"
#include "kernels/cuda/step/split_rows.h"

// What two tensor ranks compute when their ops are split, with every order in which the ops of the
// ranks and the copies between them can run. Ops are arithmetic on small whole numbers, which bf16
// and float32 hold exactly, so that the results equal those of the ops that are not split.
namespace baton::cuda {
namespace {

constexpr int64_t kRows = 2500;
constexpr int64_t kHalf = 1280;
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
  Rank(int rank, Model model) : rank_(rank), model_(model), memory_(size_t{1} << 20) {
    split.rank = rank;
    split.place_bytes = kHalf * kCols * 2;
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
    ops.emplace_back(ExchangeOp(ReduceOp{.x = delta, .ranks = 2, .half = 0}));
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
        Tensor part = c.delta;
        for (int32_t i = 0; part.data != nullptr && i < c.delta_parts; ++i) {
          value += Get(part, row, col);
          part.data += c.delta_part * 2;
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

// Two ranks, whose ops run on a stream each, and whose copies run on another one.
class TwoRanks {
 public:
  explicit TwoRanks(Model model) : ranks_{Rank(0, model), Rank(1, model)} {}

  void RunWhole() {
    const std::array<std::vector<StepOp>, 2> ops = {ranks_[0].List(false), ranks_[1].List(false)};
    for (size_t i = 0; i < ops[0].size(); ++i) {
      for (size_t rank = 0; rank < 2; ++rank) ranks_[rank].Run(ops[rank][i]);
      const auto* const exchange = std::get_if<ExchangeOp>(&ops[0][i]);
      if (exchange == nullptr) continue;
      ForNumbers(ranks_[0].delta, [&](int64_t row, int64_t col) {
        const float sum = Get(ranks_[0].delta, row, col) + Get(ranks_[1].delta, row, col);
        Set(ranks_[1].delta, row, col, sum);
        return sum;
      });
    }
  }

  // In each turn one of the four streams goes on, which is chosen at random. Stream i is chosen
  // with weight weights[i].
  testing::AssertionResult RunSplit(const std::array<double, 4>& weights, std::mt19937& random) {
    for (size_t rank = 0; rank < 2; ++rank) ops_[rank] = ranks_[rank].List(true);
    std::array<double, 4> left = weights;
    while (next_[0] < ops_[0].size() || next_[1] < ops_[1].size() || !puts_[0].empty() ||
           !puts_[1].empty()) {
      const size_t stream =
          static_cast<size_t>(std::discrete_distribution<int>(left.begin(), left.end())(random));
      if (left[stream] == 0) return testing::AssertionFailure() << "no stream goes on";
      const bool ran = stream < 2 ? RunOp(stream) : RunPut(stream - 2);
      left = ran ? weights : left;
      if (!ran) left[stream] = 0;
    }
    return testing::AssertionSuccess();
  }

  const Rank& operator[](size_t rank) const { return ranks_[rank]; }

 private:
  struct IssuedPut {
    PutOp op;
    bool copied = false;
  };

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
        if (await->to.data != nullptr) {
          std::memcpy(await->to.data,
                      ranks_[rank].split.places[static_cast<size_t>(await->place)],
                      PackedBytes(await->to));
        }
      } else {
        ADD_FAILURE() << "an exchange that is not split";
      }
    }
    ranks_[rank].Run(op);
    ++next_[rank];
    return true;
  }

  // Copies, or ends the put when the other rank's has been copied, too.
  bool RunPut(size_t rank) {
    if (puts_[rank].empty()) return false;
    IssuedPut& put = puts_[rank].front();
    if (put.copied) {
      const size_t index = ended_[rank];
      if (copied_[1 - rank] <= index) return false;
      ++ended_[rank];
      puts_[rank].pop_front();
      return true;
    }
    for (const Put& one : put.op.puts) {
      if (one.bytes > 0) std::memcpy(OnOther(rank, one.to, one.bytes), one.from, one.bytes);
    }
    put.copied = true;
    ++copied_[rank];
    return true;
  }

  std::byte* OnOther(size_t rank, const std::byte* at, size_t bytes) const {
    const RowSplit& own = ranks_[rank].split;
    const RowSplit& other = ranks_[1 - rank].split;
    for (size_t place = 0; place < own.places.size(); ++place) {
      const auto offset = static_cast<size_t>(at - own.places[place]);
      if (at < own.places[place] || offset + bytes > own.place_bytes) continue;
      return other.places[place] + offset;
    }
    const auto offset = at - reinterpret_cast<const std::byte*>(own.scales);
    EXPECT_TRUE(offset >= 0 && offset + static_cast<int64_t>(bytes) <= kRows * 4) << offset;
    return reinterpret_cast<std::byte*>(other.scales) + offset;
  }

  std::array<Rank, 2> ranks_;
  std::array<std::vector<StepOp>, 2> ops_;
  std::array<size_t, 2> next_ = {};
  std::array<std::deque<IssuedPut>, 2> puts_;
  std::array<size_t, 2> copied_ = {};
  std::array<size_t, 2> ended_ = {};
};

std::vector<std::byte> BytesOf(const Tensor& x) {
  return {x.data, x.data + PackedBytes(x)};
}

class SplitRowsRunTest : public testing::TestWithParam<Model> {};
INSTANTIATE_TEST_SUITE_P(Models,
                         SplitRowsRunTest,
                         testing::Values(Model::kBf16, Model::kFp8, Model::kMixture));

TEST_P(SplitRowsRunTest, AnyOrderGivesTheResultsOfWholeOps) {
  TwoRanks whole(GetParam());
  whole.RunWhole();
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    // Ops of one rank, or copies, can be far behind the others.
    std::array<double, 4> weights;
    for (double& weight : weights) weight = std::exp2(-static_cast<double>(random() % 9));
    TwoRanks split(GetParam());
    ASSERT_TRUE(split.RunSplit(weights, random));
    for (size_t rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(BytesOf(split[rank].qkv), BytesOf(whole[rank].qkv)) << "rank " << rank;
      ASSERT_EQ(BytesOf(split[rank].residual), BytesOf(whole[rank].residual)) << "rank " << rank;
      ASSERT_EQ(BytesOf(split[rank].last), BytesOf(whole[rank].last)) << "rank " << rank;
    }
  }
}

}  // namespace
}  // namespace baton::cuda
