#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/exchange/exchange_watch.h"
#include "kernels/cuda/exchange/listed_exchange.h"
#include "kernels/cuda/exchange/nccl_library.h"
#include "kernels/cuda/exchange/peer_kernels.h"

// What the exchanges between GPUs decide on the host.
namespace baton::cuda {
namespace {

using testing::HasSubstr;

class ListedExchangeTest : public testing::Test {
 protected:
  ListedExchange Make(const RankPlace& place, size_t slot_bytes = 0, size_t stage_slot_bytes = 0) {
    return ListedExchange(
        {.place = place, .slot_bytes = slot_bytes, .stage_slot_bytes = stage_slot_bytes},
        {.pad =
             [](const Tensor& tensor) {
               Tensor padded = tensor;
               if (tensor.rows == 3) padded.rows = 4;
               return padded;
             },
         .scratch =
             [this](size_t bytes) {
               asked_ = bytes;
               return has_memory_ ? &memory_ : nullptr;
             },
         .add = [this](ExchangeOp op) { ops_.push_back(std::move(op)); }});
  }
  Tensor Rows(int64_t rows, int64_t cols, int64_t stride, DType dtype = DType::kBF16) {
    return {&memory_, dtype, rows, cols, stride};
  }
  template <class Op>
  const Op& last() {
    return std::get<Op>(ops_.back());
  }

  // The halves of all ops; 9 for an op without.
  std::vector<int32_t> halves() const {
    std::vector<int32_t> halves;
    for (const ExchangeOp& op : ops_) {
      halves.push_back(std::visit(
          [](const auto& one) {
            if constexpr (requires { one.slot_buffer; }) return one.slot_buffer;
            return int32_t{9};
          },
          op));
    }
    return halves;
  }
  // The rows of all ops, which are sums and gathers.
  std::vector<int64_t> rows() const {
    std::vector<int64_t> rows;
    for (const ExchangeOp& op : ops_) {
      const auto* const reduce = std::get_if<ReduceOp>(&op);
      rows.push_back(reduce != nullptr ? reduce->x.rows : std::get<GatherColumnsOp>(op).whole.rows);
    }
    return rows;
  }

  std::byte memory_{};
  bool has_memory_ = true;
  size_t asked_ = 0;
  std::vector<ExchangeOp> ops_;
};

TEST_F(ListedExchangeTest, ExchangesThroughSlotsUseTheirHalvesInTurn) {
  auto two = Make(RankPlace::Of(2, 1, 1), size_t{64} << 10);
  int32_t tokens[3] = {};
  for (int step = 0; step < 2; ++step) {
    ops_.clear();
    two.BeginStep();
    two.AllReduce(Rows(4, 4096, 4096));  // 32 KiB
    two.AllReduce(Rows(8, 4096, 4096));  // 64 KiB
    two.AllReduce(Rows(9, 4096, 4096));  // two ops of 32 and 40 KiB
    two.AllReduce(Rows(4, 4092, 4096));  // rows are no multiple of 16 bytes
    two.GatherToFirst(Rows(4, 100, 100), {{50, 100}});
    two.GatherToFirst(Rows(4, 100, 100), {{51, 100}});  // columns are no multiple of 4 bytes
    two.Barrier();
    two.EndStep(tokens, 3);
    // The last one only evens out the number of exchanges.
    EXPECT_THAT(halves(), testing::ElementsAre(0, 1, 0, 1, -1, 0, -1, 1, 0, 1));
    EXPECT_TRUE(std::holds_alternative<BarrierOp>(ops_.back()));
  }
}

TEST_F(ListedExchangeTest, SumsLargerThanASlotAreListedAsRangesOfRows) {
  auto two = Make(RankPlace::Of(2, 1, 1), size_t{64} << 10);
  two.BeginStep();
  two.AllReduce(Rows(20, 4096, 4112));  // 160 KiB and gaps between the rows
  EXPECT_THAT(halves(), testing::ElementsAre(0, 1, 0));
  EXPECT_THAT(rows(), testing::ElementsAre(6, 7, 7));
  int64_t next = 0;
  for (const ExchangeOp& op : ops_) {
    const auto& reduce = std::get<ReduceOp>(op);
    EXPECT_EQ(reduce.x.data - &memory_, next * 4112 * 2);
    EXPECT_EQ(reduce.ranks, 2);
    EXPECT_FALSE(reduce.two_shot);
    next += reduce.x.rows;
  }
  two.EndStep(nullptr, 0);
  EXPECT_EQ(last<BarrierOp>().slot_buffer, 1);
  // A row does not fit.
  two.AllReduce(Rows(1, 65536, 65536));
  EXPECT_EQ(last<ReduceOp>().slot_buffer, kThroughNccl);
}

TEST_F(ListedExchangeTest, LargeSumsOfMoreRanksThroughSlotsAreTwoShot) {
  constexpr size_t kSlot = size_t{32} << 20;
  const auto is_two_shot = [&](int32_t ranks, int64_t rows) {
    auto listed = Make(RankPlace::Of(ranks, 1, 0), kSlot);
    listed.AllReduce(Rows(rows, 4096, 4096));  // rows of 8 KiB
    EXPECT_NE(last<ReduceOp>().slot_buffer, kThroughNccl);
    return last<ReduceOp>().two_shot;
  };
  EXPECT_FALSE(is_two_shot(2, 8192));
  EXPECT_FALSE(is_two_shot(3, 143));
  EXPECT_TRUE(is_two_shot(3, 144));
  EXPECT_FALSE(is_two_shot(4, 63));
  EXPECT_TRUE(is_two_shot(4, 64));
  EXPECT_FALSE(is_two_shot(8, 18));
  EXPECT_TRUE(is_two_shot(8, 19));
}

// A slot has room for a slice of the numbers and a slice of sums, so that slots of 32 MiB serve a
// sum of 64 MiB of 4 ranks.
TEST_F(ListedExchangeTest, TwoShotSumsAreAsLargeAsTwoSlicesOfASlot) {
  auto four = Make(RankPlace::Of(4, 1, 0), size_t{32} << 20);
  four.AllReduce(Rows(8192, 4096, 4096));
  EXPECT_THAT(rows(), testing::ElementsAre(8192));
  ops_.clear();
  four.AllReduce(Rows(8200, 4096, 4096));
  EXPECT_THAT(rows(), testing::ElementsAre(4100, 4100));
  EXPECT_THAT(halves(), testing::ElementsAre(1, 0));
  EXPECT_EQ(TwoShotBytes(47, 4), 4u * 16);
}

TEST_F(ListedExchangeTest, GathersAreBoundedByTheColumnsOfOneRank) {
  auto two = Make(RankPlace::Of(2, 1, 0), size_t{64} << 10);
  two.BeginStep();
  two.AllGather(Rows(16, 4096, 4096), {{2048, 4096}});  // a rank sends 64 KiB
  EXPECT_THAT(rows(), testing::ElementsAre(16));
  two.AllGather(Rows(16, 4096, 4096), {{1024, 4096}});
  two.GatherToFirst(Rows(17, 4096, 4096), {{2048, 4096}});
  EXPECT_THAT(rows(), testing::ElementsAre(16, 8, 8, 8, 9));
  EXPECT_THAT(halves(), testing::ElementsAre(0, 1, 0, 1, 0));
  const auto& gather = last<GatherColumnsOp>();
  EXPECT_EQ(gather.whole.data - &memory_, 8 * 4096 * 2);
  EXPECT_EQ(gather.ends, (std::vector<int64_t>{2048, 4096}));
  EXPECT_FALSE(gather.to_all);
}

TEST_F(ListedExchangeTest, TensorsWithoutRowsAreNotExchanged) {
  auto two = Make(RankPlace::Of(2, 1, 0), size_t{64} << 10);
  two.BeginStep();
  two.AllReduce(Rows(0, 4096, 4096));
  two.AllGather(Rows(0, 4096, 4096), {{2048, 4096}});
  two.EndStep(nullptr, 0);
  EXPECT_TRUE(ops_.empty());
}

TEST_F(ListedExchangeTest, AnEvenNumberOfExchangesNeedsNoOther) {
  auto two = Make(RankPlace::Of(2, 1, 0), size_t{64} << 10);
  two.BeginStep();
  two.AllReduce(Rows(4, 4096, 4096));
  int32_t tokens[3] = {};
  two.EndStep(tokens, 3);
  ASSERT_EQ(ops_.size(), 2u);
  EXPECT_EQ(last<ShareTokensOp>().count, 3);
  EXPECT_EQ(last<ShareTokensOp>().slot_buffer, 1);
}

TEST_F(ListedExchangeTest, SmallSumsAndThoseOfTwoRanksGatherAllParts) {
  auto two = Make(RankPlace::Of(2, 1, 1));
  two.AllReduce(Rows(3, 64, 64));
  EXPECT_EQ(last<ReduceOp>().x.rows, 4);
  EXPECT_EQ(last<ReduceOp>().ranks, 2);
  EXPECT_EQ(asked_, 2u * 4 * 64 * 2);
  two.AllReduce(Rows(8192, 4096, 4096));
  EXPECT_FALSE(last<ReduceOp>().two_shot);
  auto four = Make(RankPlace::Of(4, 1, 0));
  four.AllReduce(Rows(32, 4096, 4096));
  EXPECT_FALSE(last<ReduceOp>().two_shot);
  EXPECT_EQ(asked_, 4u * 32 * 4096 * 2);
}

TEST_F(ListedExchangeTest, LargeSumsOfMoreRanksAddSlices) {
  auto four = Make(RankPlace::Of(4, 1, 0));
  four.AllReduce(Rows(64, 4096, 4096));
  EXPECT_TRUE(last<ReduceOp>().two_shot);
  EXPECT_EQ(asked_, 64u * 4096 * 2);
  // Gaps between the rows, and slices that are not equal.
  four.AllReduce(Rows(64, 4096, 4112));
  EXPECT_FALSE(last<ReduceOp>().two_shot);
  auto three = Make(RankPlace::Of(3, 1, 0));
  three.AllReduce(Rows(64, 4096, 4096));
  EXPECT_FALSE(last<ReduceOp>().two_shot);
}

TEST_F(ListedExchangeTest, PacksOnlyTensorsWithGaps) {
  auto stage = Make(RankPlace::Of(1, 2, 0));
  stage.SendToStage(Rows(2, 64, 64, DType::kF32), 1);
  EXPECT_EQ(last<StageOp>().packed, nullptr);
  EXPECT_TRUE(last<StageOp>().send);
  stage.ReceiveFromStage(Rows(2, 50, 64, DType::kF32), 1);
  EXPECT_NE(last<StageOp>().packed, nullptr);
  EXPECT_EQ(asked_, 2u * 50 * 4);
  EXPECT_FALSE(last<StageOp>().send);
  stage.ReceiveFromStage(Rows(1, 50, 64, DType::kF32), 1);
  EXPECT_EQ(last<StageOp>().packed, nullptr);
}

TEST_F(ListedExchangeTest, MessagesBetweenStagesAreRangesOfRowsThatFitASlot) {
  auto stage = Make(RankPlace::Of(1, 2, 1), 0, size_t{64} << 10);
  EXPECT_TRUE(stage.SendsAhead(size_t{1} << 40));
  EXPECT_FALSE(Make(RankPlace::Of(1, 2, 1)).SendsAhead(1));
  stage.ReceiveFromStage(Rows(3, 1024, 1040, DType::kF32), 0);  // padded to 4 rows of 4 KiB, gaps
  ASSERT_EQ(ops_.size(), 1u);
  EXPECT_TRUE(last<StageOp>().through_slots);
  EXPECT_FALSE(last<StageOp>().send);
  EXPECT_EQ(last<StageOp>().packed, nullptr);
  EXPECT_EQ(last<StageOp>().x.rows, 4);
  ops_.clear();
  stage.SendToStage(Rows(40, 1024, 1040, DType::kF32), 0);
  ASSERT_EQ(ops_.size(), 3u);
  int64_t next = 0;
  for (const ExchangeOp& op : ops_) {
    const auto& message = std::get<StageOp>(op);
    EXPECT_TRUE(message.send);
    EXPECT_LE(message.x.rows, 16);
    EXPECT_EQ(message.x.data - &memory_, next * 1040 * 4);
    next += message.x.rows;
  }
  EXPECT_EQ(next, 40);
}

// Where several steps are under way, the leader samples after the other ranks have ended the step,
// and the next step of a sequence has its tokens from the host.
TEST_F(ListedExchangeTest, TokensAreSharedWhereStepsAreQueued) {
  int32_t tokens[3] = {};
  const auto shares = [&](int32_t rank, size_t stage_slot_bytes) {
    ops_.clear();
    auto listed = Make(RankPlace::Of(2, 2, rank), size_t{64} << 10, stage_slot_bytes);
    listed.BeginStep();
    listed.EndStep(tokens, 3);
    return std::ranges::any_of(
        ops_, [](const ExchangeOp& op) { return std::holds_alternative<ShareTokensOp>(op); });
  };
  EXPECT_TRUE(shares(0, 0));
  EXPECT_TRUE(shares(1, 0));
  EXPECT_FALSE(shares(2, 0)) << "the second stage embeds no tokens";
  EXPECT_FALSE(shares(0, size_t{64} << 10));
  EXPECT_FALSE(shares(1, size_t{64} << 10));
}

TEST_F(ListedExchangeTest, OneTensorRankExchangesNothing) {
  auto stage = Make(RankPlace::Of(1, 2, 1));
  stage.AllReduce(Rows(3, 64, 64));
  stage.Barrier();
  const std::vector<int64_t> ends = {64};
  stage.GatherToFirst(Rows(3, 64, 64), ends);
  EXPECT_TRUE(ops_.empty());
}

TEST_F(ListedExchangeTest, ListsNothingWithoutMemory) {
  has_memory_ = false;
  auto two = Make(RankPlace::Of(2, 1, 0));
  two.AllReduce(Rows(3, 64, 64));
  const std::vector<int64_t> ends = {32, 64};
  two.AllGather(Rows(3, 64, 64), ends);
  two.Barrier();
  EXPECT_TRUE(ops_.empty());
}

// ---- ExchangeWatch

struct Watched {
  explicit Watched(Duration limit, Duration first_limit = std::chrono::minutes(1))
      : watch({.group_status =
                   [this] {
                     return broken ? Status(StatusCode::kDeadlineExceeded, "rank 1 is late")
                                   : OkStatus();
                   },
               .abort = [this] { ++aborts; },
               .limit = limit,
               .first_limit = first_limit},
              clock) {}
  void AwaitAbort() const {
    while (aborts == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  SteadyClock clock;
  std::atomic<bool> broken = false;
  std::atomic<int> aborts = 0;
  ExchangeWatch watch;
};

TEST(ExchangeWatchTest, AbortsAStepOfABrokenGroupOnce) {
  Watched watched(std::chrono::minutes(1));
  watched.watch.Begin();
  EXPECT_TRUE(watched.watch.status().ok());
  watched.broken = true;
  watched.AwaitAbort();
  EXPECT_EQ(watched.watch.status(), Status(StatusCode::kUnavailable, "rank 1 is late"));
  EXPECT_TRUE(watched.watch.AbortedFor(Duration::zero()));
  EXPECT_FALSE(watched.watch.AbortedFor(std::chrono::minutes(1)));
  watched.watch.Fail(Status(StatusCode::kInternal, "another reason"));
  EXPECT_EQ(Message(watched.watch.status()), "rank 1 is late");
  EXPECT_EQ(watched.aborts, 1);
}

TEST(ExchangeWatchTest, AnIdleGroupIsNotWatched) {
  Watched watched(std::chrono::milliseconds(1));
  watched.broken = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_TRUE(watched.watch.status().ok());
  EXPECT_FALSE(watched.watch.AbortedFor(Duration::zero()));
}

TEST(ExchangeWatchTest, TheFirstStepMayTakeLonger) {
  Watched watched(std::chrono::milliseconds(1));
  watched.watch.Begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_TRUE(watched.watch.status().ok());
  watched.watch.Begin();
  watched.watch.End();
  watched.AwaitAbort();
  EXPECT_THAT(std::string(Message(watched.watch.status())), HasSubstr("has not ended within"));
}

// ---- NcclLibrary

TEST(NcclLibraryTest, LoadsOrNamesThePackage) {
  const auto library = NcclLibrary::Load();
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "0");
  if (library.ok()) {
    int version = 0;
    EXPECT_EQ((*library)->get_version(&version), ncclSuccess);
    EXPECT_GE(version, NCCL_VERSION(2, 28, 0));
    return;
  }
  EXPECT_THAT(std::string(Message(library.status())), HasSubstr("nvidia-nccl-cu13"));
}

}  // namespace
}  // namespace baton::cuda
