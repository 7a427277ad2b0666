#include <gtest/gtest.h>

#include "tests/fakes/engine_harness.h"

// Steps that are issued while the previous step is under way.
namespace baton {
namespace {

HarnessOptions Options() {
  HarnessOptions options;
  options.kv.blocks = 64;
  options.kv.block_tokens = 4;
  options.max_step_tokens = 64;
  options.max_sequences = 8;
  return options;
}

class StepQueueTest : public ::testing::Test {
 protected:
  EngineHarness harness_{Options(), {.queues_steps = true}};

  void ExpectTokens(const Request& request) {
    for (int32_t i = 0; i < request.samples; ++i) {
      EXPECT_EQ(harness_.log(request).Tokens(i), harness_.model().Expected(request, i));
    }
  }
};

TEST_F(StepQueueTest, DecodingStepsAreIssuedBehindOthers) {
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(MakeRequest(i, 5 + i, i, 20 + i));
    requests.back().samples = i == 3 ? 3 : 1;
    harness_.Submit(requests.back());
  }
  ASSERT_TRUE(harness_.RunUntilIdle());
  for (const Request& request : requests) ExpectTokens(request);
  // All steps except the step of the prompts and the first one after it were issued ahead. No row
  // was computed in vain, because the lengths were known.
  EXPECT_EQ(harness_.model().steps_behind(), harness_.engine().Stats().steps - 2);
  EXPECT_EQ(harness_.model().rows_run(), 5 + 6 + 7 + 8 + 19 + 20 + 21 + 3 * 22);
}

TEST_F(StepQueueTest, AStopTokenCostsOneRowAndItsBlocksStayUntilThat) {
  Request request = MakeRequest(1, 6, 1, 30);
  const std::vector<TokenId> all = harness_.model().Expected(request, 0);
  request.stop_tokens = {all[9]};
  harness_.Submit(request);
  while (!harness_.log(request).ended()) ASSERT_TRUE(harness_.Step());
  ExpectTokens(request);
  const size_t tokens = harness_.log(request).Tokens(0).size();
  EXPECT_LE(tokens, 10u);
  EXPECT_LT(harness_.engine().Stats().blocks_free, 64);
  ASSERT_TRUE(harness_.RunUntilIdle());
  EXPECT_EQ(harness_.engine().Stats().blocks_free, 64);
  // Rows of the prompt and of each output token; the row of the last token was computed in vain.
  EXPECT_EQ(harness_.model().rows_run(), 6 + static_cast<int64_t>(tokens));
}

TEST_F(StepQueueTest, CancelledWhileItsStepIsUnderWay) {
  const Request request = MakeRequest(1, 6, 1, 30);
  const Request other = MakeRequest(2, 6, 2, 30);
  harness_.Submit(request);
  harness_.Submit(other);
  for (int i = 0; i < 5; ++i) harness_.Step();
  harness_.engine().Cancel(request.id, request.epoch);
  harness_.Step();
  EXPECT_EQ(harness_.log(request).failure->code(), StatusCode::kCancelled);
  ASSERT_TRUE(harness_.RunUntilIdle());
  ExpectTokens(other);
  EXPECT_EQ(harness_.engine().Stats().blocks_free, 64);
}

TEST_F(StepQueueTest, APromptDoesNotWaitForStepsBehind) {
  const Request running = MakeRequest(1, 6, 1, 60);
  harness_.Submit(running);
  for (int i = 0; i < 5; ++i) harness_.Step();
  const Request newcomer = MakeRequest(2, 6, 2, 5);
  harness_.Submit(newcomer);
  harness_.Step();  // the step that was under way when the request arrived
  EXPECT_TRUE(harness_.log(newcomer).samples.empty());
  harness_.Step();
  EXPECT_EQ(harness_.log(newcomer).Tokens(0).size(), 1u);
  ASSERT_TRUE(harness_.RunUntilIdle());
  ExpectTokens(running);
  ExpectTokens(newcomer);
}

TEST_F(StepQueueTest, AReservationHoldsUpNoStepBehind) {
  const Request running = MakeRequest(1, 6, 1, 60);
  harness_.Submit(running);
  for (int i = 0; i < 5; ++i) harness_.Step();
  const auto others = [&] {
    return harness_.engine().Stats().steps - harness_.model().steps_behind();
  };
  const int64_t before = others();
  Request reserved = MakeRequest(2, 10, 2, 5);
  reserved.kind = RequestKind::kDecode;
  harness_.Submit(reserved);
  harness_.Step();
  ASSERT_TRUE(harness_.log(reserved).reservation.has_value());
  EXPECT_EQ(harness_.log(reserved).reservation->blocks.size(), 3u);
  for (int i = 0; i < 5; ++i) harness_.Step();
  EXPECT_EQ(others(), before);
  harness_.engine().Cancel(reserved.id, reserved.epoch);
  harness_.engine().ReleaseKv(reserved.id, reserved.epoch);
  ASSERT_TRUE(harness_.RunUntilIdle());
  ExpectTokens(running);
  EXPECT_EQ(harness_.engine().Stats().blocks_free, 64);
}

// The forward pass of a step need not wait for them.
TEST_F(StepQueueTest, PenaltiesNeedTheTokensBefore) {
  std::vector<Request> requests;
  for (uint64_t id = 1; id <= 3; ++id) {
    requests.push_back(MakeRequest(id, 6, id, 10 * static_cast<int32_t>(id)));
    if (id != 2) requests.back().sampling.presence_penalty = 0.5f;
    harness_.Submit(requests.back());
  }
  ASSERT_TRUE(harness_.RunUntilIdle());
  for (const Request& request : requests) ExpectTokens(request);
  EXPECT_GE(harness_.model().steps_behind(), 20);
  EXPECT_EQ(harness_.model().faults(), 0);
}

TEST_F(StepQueueTest, AFailedStepTakesTheOneBehindAlong) {
  const Request request = MakeRequest(1, 6, 1, 30);
  harness_.Submit(request);
  for (int i = 0; i < 5; ++i) harness_.Step();
  const int64_t steps = harness_.engine().Stats().steps;
  harness_.model().FailRuns(1, /*late=*/true);
  harness_.Step();
  EXPECT_EQ(harness_.log(request).failure->code(), StatusCode::kInternal);
  EXPECT_EQ(harness_.engine().Stats().steps, steps + 1);
  EXPECT_EQ(harness_.engine().Stats().blocks_free, 64);
  const Request later = MakeRequest(2, 6, 1, 30);
  harness_.Submit(later);
  ASSERT_TRUE(harness_.RunUntilIdle());
  ExpectTokens(later);
}

}  // namespace
}  // namespace baton
