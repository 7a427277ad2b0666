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

#include "tests/gpu/simulated_rank.h"

// What tensor ranks compute when their ops are split, with every order in which the ops of the
// ranks and the copies between them can run. Ops are arithmetic on small whole numbers, which bf16
// and float32 hold exactly, so that the results equal those of the ops that are not split.
namespace baton::cuda {
namespace {

// Ranks whose ops run on a stream each, and whose copies run on another one each.
class Ranks {
 public:
  Ranks(int count, Model model, Memory memory = Memory::kFixed)
      : ops_(At(count)), next_(At(count)), puts_(At(count)) {
    for (int rank = 0; rank < count; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(rank, count, model, memory));
    }
    published_.resize(ranks_.size());
    taken_.resize(ranks_.size());
    copied_.resize(ranks_.size());
    ended_.resize(ranks_.size());
  }

  void RunWhole() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) ops_[rank] = ranks_[rank]->List(false);
    for (size_t i = 0; i < ops_[0].size(); ++i) {
      for (size_t rank = 0; rank < ranks_.size(); ++rank) ranks_[rank]->Run(ops_[rank][i]);
      const auto* const exchange = std::get_if<ExchangeOp>(&ops_[0][i]);
      if (exchange == nullptr) continue;
      if (std::holds_alternative<ReduceOp>(*exchange)) {
        AddDeltas();
        continue;
      }
      for (size_t rank = 0; rank < ranks_.size(); ++rank) Publish(rank, GatherAt(rank, i));
      for (size_t rank = 0; rank < ranks_.size(); ++rank) Take(rank, GatherAt(rank, i));
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

  const GatherColumnsOp& GatherAt(size_t rank, size_t op) const {
    return std::get<GatherColumnsOp>(std::get<ExchangeOp>(ops_[rank][op]));
  }
  static Tensor ColumnsOf(const GatherColumnsOp& op, size_t rank) {
    const int64_t first = rank == 0 ? 0 : op.ends[rank - 1];
    return op.whole.Columns(first, op.ends[rank] - first);
  }
  // Sends a rank's columns to the others.
  void Publish(size_t rank, const GatherColumnsOp& op) {
    const Tensor mine = ColumnsOf(op, rank);
    std::vector<float> numbers;
    for (int64_t row = 0; row < mine.rows; ++row) {
      for (int64_t col = 0; col < mine.cols; ++col) numbers.push_back(Get(mine, row, col));
    }
    published_[rank].push_back(std::move(numbers));
  }
  // Whether the others' columns have come. If so, takes them.
  bool Take(size_t rank, const GatherColumnsOp& op) {
    const size_t index = taken_[rank];
    for (const auto& others : published_) {
      if (others.size() <= index) return false;
    }
    for (size_t other = 0; other < ranks_.size(); ++other) {
      const Tensor columns = ColumnsOf(op, other);
      ForNumbers(columns, [&](int64_t row, int64_t col) {
        return published_[other][index][static_cast<size_t>(row * columns.cols + col)];
      });
    }
    ++taken_[rank];
    return true;
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
        const bool ended = std::ranges::none_of(puts_[rank], [&](const IssuedPut& one) {
          return one.op.put_buffer == await->put_buffer;
        });
        if (!ended) return false;
        for (const ByteCopy& copy : await->copies) std::memcpy(copy.to, copy.from, copy.bytes);
      } else if (const auto* const gather = std::get_if<GatherColumnsOp>(exchange)) {
        EXPECT_TRUE(puts_[rank].empty()) << "two exchanges at a time";
        EXPECT_NE(gather->whole.data, ranks_[rank]->delta.data) << "it is not split";
        if (published_[rank].size() == taken_[rank]) Publish(rank, *gather);
        if (!Take(rank, *gather)) return false;
      } else {
        // The ranks do not wait for each other at the barrier of a step with an odd number of
        // exchanges: the put buffers must not need it.
        EXPECT_TRUE(std::holds_alternative<BarrierOp>(*exchange)) << "a sum that is not split";
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
    for (size_t i = 0; i < own.put_buffers.size(); ++i) {
      const auto offset = static_cast<size_t>(at - own.put_buffers[i]);
      if (at < own.put_buffers[i] || offset + bytes > own.put_buffer_bytes) continue;
      return of_other.put_buffers[i] + offset;
    }
    const auto offset = at - reinterpret_cast<const std::byte*>(own.scales);
    EXPECT_TRUE(offset >= 0 && offset + static_cast<int64_t>(bytes) <= kRows * 4) << offset;
    return reinterpret_cast<std::byte*>(of_other.scales) + offset;
  }

  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::vector<StepOp>> ops_;
  std::vector<size_t> next_;
  std::vector<std::deque<IssuedPut>> puts_;
  std::vector<std::vector<std::vector<float>>> published_;  // of each gather
  std::vector<size_t> taken_;
  std::vector<size_t> copied_;
  std::vector<size_t> ended_;
};

std::vector<std::byte> BytesOf(const Tensor& x) {
  return {x.data, x.data + PackedBytes(x)};
}

class SplitRowsRunTest : public testing::TestWithParam<std::tuple<Model, int>> {};
INSTANTIATE_TEST_SUITE_P(
    Dense,
    SplitRowsRunTest,
    testing::Combine(testing::Values(Model::kBf16, Model::kFp8, Model::kGather, Model::kGatherFp8),
                     testing::Values(2, 3, 4)));
// More than two ranks do not split the steps of a mixture.
INSTANTIATE_TEST_SUITE_P(Mixture,
                         SplitRowsRunTest,
                         testing::Values(std::tuple(Model::kMixture, 2)));

// Ops of one rank, or copies, can be far behind the others.
std::vector<double> RandomWeights(const Ranks& ranks, std::mt19937& random) {
  std::vector<double> weights(2 * ranks.size());
  for (double& weight : weights) weight = std::exp2(-static_cast<double>(random() % 9));
  return weights;
}

TEST_P(SplitRowsRunTest, AnyOrderGivesTheResultsOfWholeOps) {
  const auto& [model, count] = GetParam();
  Ranks whole(count, model);
  whole.RunWhole();
  std::mt19937 random(5);
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    const std::vector<double> weights = RandomWeights(whole, random);
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

// A value's memory is used again while copy engines and other ranks are behind.
TEST_P(SplitRowsRunTest, PlannedMemoryGivesTheSameResults) {
  const auto& [model, count] = GetParam();
  Ranks whole(count, model);
  whole.RunWhole();
  std::mt19937 random(7);
  for (int round = 0; round < 2; ++round) {
    SCOPED_TRACE(round);
    const std::vector<double> weights = RandomWeights(whole, random);
    Ranks split(count, model, Memory::kPlanned);
    ASSERT_TRUE(split.RunSplit(weights, random));
    for (size_t rank = 0; rank < split.size(); ++rank) {
      ASSERT_EQ(BytesOf(split[rank].last), BytesOf(whole[rank].last)) << "rank " << rank;
      const StepMemory& needed = split[rank].needed;
      EXPECT_LE(needed.bytes, needed.in_use + needed.in_use / 10);
    }
  }
}

}  // namespace
}  // namespace baton::cuda
