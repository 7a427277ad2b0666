#include "router/workers/worker_book.h"

#include <optional>

#include <gtest/gtest.h>

#include "router/workers/decode_arenas.h"

namespace baton::router {
namespace {

constexpr Time kStart{std::chrono::hours(1)};
constexpr Epoch kEpoch{1};

WorkerInfo Info(const std::string& id) {
  WorkerInfo info;
  info.id = WorkerId(id);
  info.can_prefill = info.can_decode = true;
  info.block_tokens = 16;
  info.blocks = 1000;
  info.max_sequences = 64;
  return info;
}

Time After(int ms) {
  return kStart + std::chrono::milliseconds(ms);
}

class WorkerBookTest : public testing::Test {
 protected:
  WorkerBook book_;
  WorkerSlot slot_ = *book_.Add(Info("a"), kStart);
};

TEST_F(WorkerBookTest, BookingAndReleasingTwiceCountsOnce) {
  book_.Book(slot_, RequestId(1), kEpoch, {100, 7}, kStart);
  book_.Book(slot_, RequestId(1), kEpoch, {100, 7}, kStart);
  EXPECT_EQ(book_.Estimate(slot_).requests, 1);
  EXPECT_EQ(book_.Estimate(slot_).queued_tokens, 100);
  EXPECT_EQ(book_.Estimate(slot_).blocks_free, 993);
  book_.Release(slot_, RequestId(1), kEpoch);
  book_.Release(slot_, RequestId(1), kEpoch);
  EXPECT_EQ(book_.Estimate(slot_).requests, 0);
  EXPECT_EQ(book_.Estimate(slot_).queued_tokens, 0);
  EXPECT_EQ(book_.Estimate(slot_).blocks_free, 1000);
}

TEST_F(WorkerBookTest, TheHeartbeatReplacesTheBooks) {
  book_.Book(slot_, RequestId(1), kEpoch, {100, 7}, kStart);
  WorkerLoad load;
  load.engine.running = 3;
  load.engine.queued_tokens = 40;
  load.engine.blocks_free = 900;
  book_.OnHeartbeat(slot_, load, After(500));
  EXPECT_EQ(book_.Estimate(slot_).requests, 3) << "request 1 is among the worker's own three";
  EXPECT_EQ(book_.Estimate(slot_).queued_tokens, 40);
  EXPECT_EQ(book_.Estimate(slot_).blocks_free, 900);
  book_.Book(slot_, RequestId(2), kEpoch, {50, 4}, After(600));
  EXPECT_EQ(book_.Estimate(slot_).requests, 4);
  EXPECT_EQ(book_.Estimate(slot_).queued_tokens, 90);
  book_.Release(slot_, RequestId(1), kEpoch);
  EXPECT_EQ(book_.Estimate(slot_).requests, 3);
}

TEST_F(WorkerBookTest, TheMeansOfRanksAreThoseOfTheLatestSteps) {
  WorkerLoad load;
  load.engine.ranks = {{.steps = 10, .step_seconds = 1, .exchange_seconds = 0.5}, {}};
  book_.OnHeartbeat(slot_, load, After(500));
  load.engine.ranks[0] = {.steps = 14, .step_seconds = 1.008, .exchange_seconds = 0.502};
  book_.OnHeartbeat(slot_, load, After(1000));
  book_.OnHeartbeat(slot_, load, After(1500));  // no step meanwhile
  const std::vector<RankMeans>& ranks = book_.record(slot_).ranks;
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_NEAR(ranks[0].step_ms, 2, 1e-9);
  EXPECT_NEAR(ranks[0].exchange_ms.value_or(0), 0.5, 1e-9);
  EXPECT_EQ(ranks[1].step_ms, 0);
  EXPECT_FALSE(ranks[1].exchange_ms.has_value());
}

TEST_F(WorkerBookTest, ARequestSentJustBeforeAHeartbeatStaysBooked) {
  book_.Book(slot_, RequestId(1), kEpoch, {100, 7}, After(499));
  WorkerLoad load;
  load.engine.blocks_free = 1000;
  book_.OnHeartbeat(slot_, load, After(500));
  EXPECT_EQ(book_.Estimate(slot_).requests, 1);
  EXPECT_EQ(book_.Estimate(slot_).queued_tokens, 100);
}

TEST_F(WorkerBookTest, WhatIsComputedOfAPromptIsNotTakenOffTwice) {
  book_.Book(slot_, RequestId(1), kEpoch, {4000, 250}, kStart);
  book_.Book(slot_, RequestId(2), kEpoch, {3000, 200}, After(10));
  WorkerLoad load;
  load.engine.running = 2;
  load.engine.queued_tokens = 4000;  // 3,000 tokens of the first prompt are computed
  book_.OnHeartbeat(slot_, load, After(500));
  EXPECT_EQ(book_.Estimate(slot_).queued_tokens, 4000);
  book_.PromptDone(slot_, RequestId(1), kEpoch);
  EXPECT_EQ(book_.Estimate(slot_).queued_tokens, 3000);
  book_.PromptDone(slot_, RequestId(2), kEpoch);
  EXPECT_EQ(book_.Estimate(slot_).queued_tokens, 0);
}

TEST_F(WorkerBookTest, EstimatesAreNeverNegative) {
  book_.Book(slot_, RequestId(1), kEpoch, {100, 7}, kStart);
  WorkerLoad load;  // the worker has already finished the request
  load.engine.blocks_free = 1000;
  book_.OnHeartbeat(slot_, load, After(500));
  book_.PromptDone(slot_, RequestId(1), kEpoch);
  book_.Release(slot_, RequestId(1), kEpoch);
  EXPECT_EQ(book_.Estimate(slot_).requests, 0);
  EXPECT_EQ(book_.Estimate(slot_).queued_tokens, 0);
  EXPECT_EQ(book_.Estimate(slot_).blocks_free, 1000);
}

TEST_F(WorkerBookTest, RemembersTheLatestWorkersThatLeft) {
  for (int i = 1; i <= 6; ++i) {
    const WorkerSlot slot = *book_.Add(Info(fmt::format("w{}", i)), kStart);
    book_.Remove(slot, i % 2 == 0, After(i));
  }
  ASSERT_EQ(book_.departures().size(), WorkerBook::kMaxDepartures);
  EXPECT_EQ(book_.departures()[0].id, WorkerId("w6"));
  EXPECT_TRUE(book_.departures()[0].drained);
  EXPECT_EQ(book_.departures()[0].at, After(6));
  EXPECT_EQ(book_.departures()[3].id, WorkerId("w3"));
  ASSERT_TRUE(book_.Add(Info("w6"), After(7)).ok());
  EXPECT_EQ(book_.departures()[0].id, WorkerId("w5")) << "a worker that is back has not left";
}

TEST_F(WorkerBookTest, RefusesMoreWorkersThanItHasSlots) {
  for (int i = 1; i < kMaxWorkers; ++i) {
    ASSERT_TRUE(book_.Add(Info(fmt::format("w{}", i)), kStart).ok());
  }
  const auto refused = book_.Add(Info("one too many"), kStart);
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  book_.Remove(WorkerSlot(5), false, kStart);
  EXPECT_EQ(*book_.Add(Info("again"), kStart), WorkerSlot(5));
}

// The number of blocks that the engine reserves for a request that is never preempted
// (Scheduler::WorstBlocks). For a hand-off: its last block is copied when it is not full.
int64_t WorstBlocks(int64_t prompt, int64_t output, int64_t samples, int64_t block_tokens) {
  const int64_t each = (prompt + output - 1 + block_tokens - 1) / block_tokens;
  const int64_t shared = prompt / block_tokens;
  return each + (samples - 1) * (each - shared) + (prompt % block_tokens != 0 ? 1 : 0);
}

TEST(DecodeArenasTest, OutputFillsTheSmallestArenaThatHoldsThePrompt) {
  const DecodeArenas arenas{16, {1000, 364, 20}};
  for (const int64_t prompt : {1, 33, 319, 320, 5000}) {
    for (const int32_t samples : {1, 2, 5}) {
      const std::optional<int32_t> room = arenas.OutputRoom(prompt, samples);
      ASSERT_TRUE(room.has_value());
      const int64_t arena = prompt < 320 ? 20 : 364;
      EXPECT_TRUE(*room == 1 || WorstBlocks(prompt, *room, samples, 16) <= arena) << prompt;
      EXPECT_GT(WorstBlocks(prompt, *room + 33, samples, 16), arena) << prompt;
    }
  }
  EXPECT_EQ(arenas.OutputRoom(33, 1), (20 - 1) * 16 + 1 - 33);
  EXPECT_FALSE(arenas.OutputRoom(16'000, 1).has_value());
  EXPECT_TRUE(arenas.OutputRoom(15'999, 1).has_value());
  EXPECT_FALSE(DecodeArenas().OutputRoom(1, 1).has_value());
}

}  // namespace
}  // namespace baton::router
