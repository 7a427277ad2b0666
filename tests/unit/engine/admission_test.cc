#include <gtest/gtest.h>

#include "tests/fakes/engine_harness.h"

namespace baton {
namespace {

HarnessOptions Options() {
  HarnessOptions options;
  options.kv.blocks = 16;
  options.kv.block_tokens = 4;
  options.max_step_tokens = 16;
  options.max_sequences = 8;
  return options;
}

TEST(AdmissionTest, PreemptsAndRecomputesWhenBlocksRunOut) {
  EngineHarness harness(Options());
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(MakeRequest(i, 6, 100 + i, 30));
  for (const Request& request : requests) harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_GT(harness.engine().Stats().preemptions, 0);
  for (const Request& request : requests) {
    EXPECT_EQ(harness.log(request).Tokens(0), harness.model().Expected(request, 0));
  }
  EXPECT_EQ(harness.engine().Stats().blocks_free, 16);
}

TEST(AdmissionTest, GuaranteedNoEvictNeverPreempts) {
  HarnessOptions options = Options();
  options.admission = AdmissionPolicy::kGuaranteedNoEvict;
  EngineHarness harness(options);
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(MakeRequest(i, 6, 100 + i, 20));
    requests.back().samples = 1 + i % 2;
  }
  for (const Request& request : requests) harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.engine().Stats().preemptions, 0);
  for (const Request& request : requests) {
    EXPECT_EQ(harness.log(request).Tokens(0), harness.model().Expected(request, 0));
  }
}

TEST(AdmissionTest, WhatCanNeverFitFailsAtOnceWithTheNumbers) {
  for (const RequestKind kind : {RequestKind::kServe, RequestKind::kDecode}) {
    EngineHarness harness(Options());
    Request request = MakeRequest(1, 64, 3, 60);
    request.kind = kind;
    harness.Submit(request);
    harness.Step();
    const auto& failure = harness.log(request).failure;
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(failure->code(), StatusCode::kOutOfRange);
    EXPECT_EQ(Message(*failure),
              "64 tokens of prompt and one of output need 17 KV blocks of 4 tokens; there are 16");
  }
}

TEST(AdmissionTest, GuaranteedNoEvictRefusesWhatMayOutgrowTheArena) {
  HarnessOptions options = Options();
  options.admission = AdmissionPolicy::kGuaranteedNoEvict;
  EngineHarness harness(options);
  const Request request = MakeRequest(1, 40, 3, 60);
  harness.Submit(request);
  harness.Step();
  const auto& failure = harness.log(request).failure;
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->code(), StatusCode::kOutOfRange);
  EXPECT_EQ(Message(*failure),
            "40 tokens of prompt and up to 100 in all need 25 KV blocks of 4 tokens; there are 16");
  const Request fits = MakeRequest(2, 40, 3, 25);
  harness.Submit(fits);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.log(fits).Tokens(0).size(), 25u);
}

TEST(AdmissionTest, AnAnswerThatOutgrowsTheArenaEndsThere) {
  EngineHarness harness(Options());
  std::vector<Request> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(MakeRequest(i, 40, 3 + i, 600));
  requests[2].samples = 2;
  for (const Request& request : requests) harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  for (const Request& request : requests) {
    for (int32_t sample = 0; sample < request.samples; ++sample) {
      const std::vector<TokenId> tokens = harness.log(request).Tokens(sample);
      // The arena has room for 64 tokens, and the last token of an answer needs no KV.
      ASSERT_EQ(tokens.size(), 25u);
      std::vector<TokenId> expected = harness.model().Expected(request, sample);
      expected.resize(tokens.size());
      EXPECT_EQ(tokens, expected);
      EXPECT_EQ(harness.log(request).samples.at(sample).back().finish, FinishReason::kLength);
    }
  }
}

TEST(AdmissionTest, AReservationNeedsRoomForThePromptAlone) {
  EngineHarness harness(Options());
  Request request = MakeRequest(1, 40, 3, 600);
  request.kind = RequestKind::kDecode;
  harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  ASSERT_TRUE(harness.log(request).reservation.has_value());
  EXPECT_EQ(harness.log(request).reservation->blocks.size(), 10u);
  harness.engine().Cancel(request.id, request.epoch);
  harness.engine().ReleaseKv(request.id, request.epoch);
  ASSERT_TRUE(harness.RunUntilIdle());
}

TEST(AdmissionTest, EqualPromptsThatArriveTogetherAreComputedOnce) {
  struct Case {
    int32_t length;
    int32_t step_tokens;
    int64_t computed;
  };
  // The first prompt fills every step but the last. The last step has room for the second prompt:
  // for 7 tokens in the first case, and for 4 in the second case, in which the first prompt
  // computes the same 4 tokens.
  for (const Case& tested : {Case{41, 8, 41 + 1}, Case{44, 12, 44 + 4}}) {
    HarnessOptions options = Options();
    options.kv.blocks = 64;
    options.max_step_tokens = tested.step_tokens;
    EngineHarness harness(options);
    Request first = MakeRequest(1, tested.length, 3, 4);
    Request second = first;
    second.id = RequestId(2);
    harness.Submit(first);
    harness.Submit(second);
    ASSERT_TRUE(harness.RunUntilIdle());
    EXPECT_EQ(harness.log(second).Tokens(0), harness.model().Expected(first, 0));
    EXPECT_EQ(harness.log(second).times->cached_tokens, 40);
    EXPECT_EQ(harness.engine().Stats().prompt_tokens, tested.computed);
  }
}

TEST(AdmissionTest, DecodesGoOnWhileAPromptIsComputed) {
  HarnessOptions options = Options();
  options.kv.blocks = 64;
  options.max_step_tokens = 4;
  options.max_sequences = 4;
  EngineHarness harness(options);
  const Request decoding = MakeRequest(1, 3, 3, 12);
  harness.Submit(decoding);
  harness.Step();
  const Request prompt = MakeRequest(2, 60, 4, 2);
  harness.Submit(prompt);
  for (size_t tokens = 2; tokens <= 12; ++tokens) {
    harness.Step();
    EXPECT_EQ(harness.log(decoding).Tokens(0).size(), tokens);
  }
  EXPECT_TRUE(harness.log(prompt).Tokens(0).empty());
  ASSERT_TRUE(harness.RunUntilIdle());
}

TEST(AdmissionTest, ReservationsThatCannotBeMetAreRefusedOverTheLimit) {
  HarnessOptions options = Options();
  options.max_waiting_reservations = 1;
  EngineHarness harness(options);
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(MakeRequest(i, 40, i, 4));
    requests.back().kind = RequestKind::kDecode;
    harness.Submit(requests.back());
  }
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_TRUE(harness.log(requests[0]).reservation.has_value());
  EXPECT_FALSE(harness.log(requests[1]).failure.has_value());
  for (int i : {2, 3}) {
    EXPECT_EQ(harness.log(requests[i]).failure->code(), StatusCode::kResourceExhausted) << i;
  }
  // The reservation that waited is met when the blocks are released.
  harness.engine().Cancel(requests[0].id, requests[0].epoch);
  harness.engine().ReleaseKv(requests[0].id, requests[0].epoch);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_TRUE(harness.log(requests[1]).reservation.has_value());
}

TEST(AdmissionTest, WithoutAPlaceInTheQueueAReservationIsMetAtOnceOrRefused) {
  HarnessOptions options = Options();
  options.max_waiting_reservations = 0;
  EngineHarness harness(options);
  Request first = MakeRequest(1, 40, 1, 4);
  Request second = MakeRequest(2, 40, 2, 4);
  first.kind = second.kind = RequestKind::kDecode;
  harness.Submit(first);
  harness.Submit(second);
  harness.Step();
  EXPECT_TRUE(harness.log(first).reservation.has_value());
  EXPECT_TRUE(harness.log(second).failure.has_value());
}

TEST(AdmissionTest, QueueHasALimit) {
  HarnessOptions options = Options();
  options.max_waiting = 2;
  EngineHarness harness(options);
  std::vector<Request> requests;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(MakeRequest(i, 4, i, 4));
    harness.Submit(requests.back());
  }
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_TRUE(harness.log(requests[1]).times.has_value());
  EXPECT_EQ(harness.log(requests[2]).failure->code(), StatusCode::kResourceExhausted);
}

TEST(AdmissionTest, DeadlineEndsARequestWhereverItIs) {
  EngineHarness harness(Options());
  Request running = MakeRequest(1, 4, 1, 50);
  Request waiting = MakeRequest(2, 40, 2, 20);
  Request awaiting = MakeRequest(3, 4, 3, 10);
  awaiting.kind = RequestKind::kDecode;
  for (Request* request : {&running, &waiting, &awaiting}) {
    request->deadline = harness.clock().Now() + std::chrono::milliseconds(10);
  }
  harness.Submit(running);
  harness.Submit(awaiting);
  harness.Step();
  harness.Submit(waiting);
  for (int i = 0; i < 12; ++i) harness.Step();
  for (const Request& request : {running, waiting, awaiting}) {
    ASSERT_TRUE(harness.log(request).failure.has_value()) << request.id.value();
    EXPECT_EQ(harness.log(request).failure->code(), StatusCode::kDeadlineExceeded);
  }
  const auto tokens = harness.log(running).Tokens(0);
  auto expected = harness.model().Expected(running, 0);
  expected.resize(tokens.size());
  EXPECT_EQ(tokens, expected);
}

TEST(AdmissionTest, PoliciesChooseWhoGoesFirst) {
  // For each policy: which of the three requests below ends its prompt first, when only one runs at
  // a time.
  const std::vector<std::pair<SchedulingPolicy, uint64_t>> cases = {
      {SchedulingPolicy::kFcfs, 1},
      {SchedulingPolicy::kPriority, 2},
      {SchedulingPolicy::kShortestPrefill, 3},
      {SchedulingPolicy::kDeadline, 2},
  };
  for (const auto& [policy, winner] : cases) {
    HarnessOptions options = Options();
    options.policy = policy;
    options.max_sequences = 1;
    EngineHarness harness(options);
    std::vector<Request> requests = {
        MakeRequest(1, 30, 1, 2), MakeRequest(2, 30, 2, 2), MakeRequest(3, 5, 3, 2)};
    requests[1].priority = 5;
    requests[1].deadline = harness.clock().Now() + std::chrono::seconds(2);
    for (const Request& request : requests) harness.Submit(request);
    uint64_t first = 0;
    while (first == 0 && harness.Step()) {
      for (const Request& request : requests) {
        if (!harness.log(request).samples.empty()) first = request.id.value();
      }
    }
    EXPECT_EQ(first, winner) << static_cast<int>(policy);
    ASSERT_TRUE(harness.RunUntilIdle());
  }
}

}  // namespace
}  // namespace baton
