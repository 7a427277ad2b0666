// Replays of finished requests: which are compared, which are dropped, and that clients do not
// notice them.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/router/simulation.h"

namespace baton::router {
namespace {

using std::chrono::milliseconds;

CoreOptions Replaying(double sample = 1) {
  CoreOptions options = Options();
  options.replay.sample = sample;
  return options;
}

// A request whose replay the fake workers recognise by the seed.
std::shared_ptr<RequestSpec> Seeded(uint64_t id, Time now, int32_t samples = 1, int32_t max = 40) {
  auto spec = Spec(id, now, samples, max);
  spec->sampling.seed = id;
  return spec;
}

// Runs until every client's request has ended, and no replay runs or waits.
void RunAll(FakeCluster& cluster) {
  ASSERT_TRUE(cluster.RunUntilDone(60'000));
  for (int i = 0; i < 60'000 && !cluster.core().replays().idle(); ++i) cluster.Step();
  ASSERT_TRUE(cluster.core().replays().idle());
}

// Runs until a replay runs.
void RunUntilReplay(FakeCluster& cluster) {
  for (int i = 0; i < 10'000 && cluster.core().replays().running().empty(); ++i) cluster.Step();
  ASSERT_FALSE(cluster.core().replays().running().empty());
}

int Skipped(const FakeCluster& cluster, ReplaySkip why) {
  return static_cast<int>(std::ranges::count(cluster.replays(), why, &ReplayResult::skipped));
}

int Compared(const FakeCluster& cluster) {
  return static_cast<int>(std::ranges::count_if(
      cluster.replays(), [](const ReplayResult& result) { return !result.skipped.has_value(); }));
}

TEST(ReplayTest, EqualOutputsOnOtherWorkersAreCounted) {
  FakeCluster cluster(Replaying(), {}, 1);
  AddPool(cluster, 2, 2);
  for (uint64_t i = 1; i <= 8; ++i) cluster.Submit(Seeded(i, cluster.now(), 1 + i % 3));
  RunAll(cluster);
  EXPECT_EQ(Compared(cluster), 8);
  for (const ReplayResult& result : cluster.replays()) {
    EXPECT_FALSE(result.mismatch.has_value()) << result.request.value();
    EXPECT_NE(result.replay.decode, result.first.decode);
    EXPECT_NE(result.replay.prefill, result.first.prefill);
    EXPECT_NE(result.replay.decode, WorkerId());
    EXPECT_EQ(result.cached_tokens, 3) << "each fake worker reports 3";
  }
  for (const auto& [id, client] : cluster.clients()) ExpectAllOf(client);
  EXPECT_EQ(cluster.clients().size(), 8u) << "a replay reached a client";
  ExpectNothingLeft(cluster);
}

TEST(ReplayTest, ADifferentTokenIsAMismatchThatNamesItsPlace) {
  FakeCluster cluster(Replaying(), {}, 2);
  AddPool(cluster, 1, 2);
  cluster.GiveWrongToken("d0", 7);
  int longer = 0;
  for (uint64_t i = 1; i <= 12; ++i) cluster.Submit(Seeded(i, cluster.now()));
  RunAll(cluster);
  ASSERT_EQ(Compared(cluster), 12);
  for (const ReplayResult& result : cluster.replays()) {
    const bool differs = TrueLength(result.request, 40, 0) > 7;
    ASSERT_EQ(result.mismatch.has_value(), differs) << result.request.value();
    if (!differs) continue;
    ++longer;
    const TokenId right = TrueToken(result.request, 0, 7);
    const bool first_wrong = result.first.decode == WorkerId("d0");
    EXPECT_EQ(result.mismatch->sample, 0);
    EXPECT_EQ(result.mismatch->position, 7);
    EXPECT_EQ(result.mismatch->first, first_wrong ? WrongToken(right) : right);
    EXPECT_EQ(result.mismatch->replay, first_wrong ? right : WrongToken(right));
    EXPECT_EQ(result.replay.prefill, WorkerId("p0")) << "there is no other prefill worker";
  }
  EXPECT_GT(longer, 3);
}

TEST(ReplayTest, NothingIsReplayedByDefaultAndAFractionOtherwise) {
  const auto replays = [](double sample) {
    FakeCluster cluster(Replaying(sample), {}, 3);
    AddPool(cluster, 1, 2);
    for (uint64_t i = 1; i <= 200; ++i) {
      cluster.Submit(Seeded(i, cluster.now(), 1, 4));
      for (int step = 0; step < 60; ++step) cluster.Step();
    }
    RunAll(cluster);
    return cluster.replays().size();
  };
  EXPECT_EQ(CoreOptions().replay.sample, 0);
  EXPECT_EQ(replays(0), 0u);
  EXPECT_NEAR(static_cast<double>(replays(0.25)), 50, 25);
}

TEST(ReplayTest, WithoutAnotherDecodeWorkerARequestIsSkipped) {
  FakeCluster cluster(Replaying(), {}, 4);
  AddPool(cluster, 2, 1);
  for (uint64_t i = 1; i <= 3; ++i) cluster.Submit(Seeded(i, cluster.now()));
  RunAll(cluster);
  EXPECT_EQ(Skipped(cluster, ReplaySkip::kNoOtherWorker), 3);
  EXPECT_EQ(Compared(cluster), 0);
}

TEST(ReplayTest, WhatADeviceThatIsNotDeterministicComputedIsNotCompared) {
  FakeCluster cluster(Replaying(), {}, 4);
  cluster.MakeNondeterministic("d1");
  AddPool(cluster, 1, 3);
  cluster.GiveWrongToken("d1", 0);
  for (uint64_t i = 1; i <= 30; ++i) cluster.Submit(Seeded(i, cluster.now()));
  RunAll(cluster);
  EXPECT_GT(Skipped(cluster, ReplaySkip::kNotDeterministic), 0) << "d1 served none";
  EXPECT_GT(Compared(cluster), 0);
  for (const ReplayResult& result : cluster.replays()) {
    EXPECT_FALSE(result.mismatch.has_value()) << result.request.value();
    EXPECT_NE(result.replay.decode, WorkerId("d1"));
  }
}

// A worker that is gone was not less deterministic.
TEST(ReplayTest, WhatAWorkerComputedThatHasLeftIsNotCompared) {
  FakeCluster cluster(Replaying(), {}, 4);
  AddPool(cluster, 1, 3);
  for (uint64_t i = 1; i <= 30; ++i) cluster.Submit(Seeded(i, cluster.now(), 1, 400));
  for (int step = 0; step < 300; ++step) cluster.Step();
  cluster.Kill("p0", 100'000);
  RunAll(cluster);
  EXPECT_GT(Skipped(cluster, ReplaySkip::kWorkerLeft), 0) << "p0 served none to its end";
  EXPECT_EQ(Skipped(cluster, ReplaySkip::kNotDeterministic), 0);
}

TEST(ReplayTest, AWorkerLostInTheMiddleEndsOnlyTheReplay) {
  FakeCluster cluster(Replaying(), {}, 5);
  AddPool(cluster, 1, 3);
  auto spec = Seeded(1, cluster.now(), 1, 4000);
  while (TrueLength(RequestId(spec->sampling.seed), 4000, 0) < 1000) {
    spec = Seeded(spec->id.value() + 1, cluster.now(), 1, 4000);
  }
  cluster.Submit(spec);
  RunUntilReplay(cluster);
  const RequestId replay = cluster.core().replays().running().front();
  for (int i = 0; i < 300; ++i) cluster.Step();
  std::string lost;
  for (const char* name : {"d0", "d1", "d2"}) {
    if (cluster.Has(name, replay)) lost = name;
  }
  ASSERT_FALSE(lost.empty());
  cluster.Kill(lost, 10);
  RunAll(cluster);
  ASSERT_EQ(cluster.replays().size(), 1u);
  EXPECT_EQ(cluster.replays()[0].skipped, ReplaySkip::kFailed);
  EXPECT_EQ(cluster.replays()[0].replay.decode, WorkerId(lost));
  ExpectAllOf(cluster.clients().at(spec->id));
  ExpectNothingLeft(cluster);
}

// The prompts keep coming, so that always one of them waits for its first token, although there are
// idle prefill workers.
TEST(ReplayTest, WhileClientsWaitNothingIsReplayedAndTheQueueIsBounded) {
  CoreOptions options = Replaying();
  options.replay.max_waiting = 4;
  FakeCluster cluster(options, {}, 6);
  AddPool(cluster, 12, 2);
  for (uint64_t i = 1; i <= 600; ++i) {
    cluster.Submit(Seeded(i, cluster.now(), 1, 4));
    for (int step = 0; step < 2; ++step) cluster.Step();
    ASSERT_LE(cluster.core().replays().waiting(), 4u);
    ASSERT_TRUE(cluster.core().replays().running().empty());
  }
  EXPECT_EQ(Compared(cluster), 0);
  EXPECT_GT(Skipped(cluster, ReplaySkip::kBusy), 400);
  RunAll(cluster);
  EXPECT_GE(Compared(cluster), 4) << "what waited at the end";
}

TEST(ReplayTest, NoMoreReplaysRunAtOnceThanAllowed) {
  CoreOptions options = Replaying();
  FakeCluster cluster(options, {}, 7);
  AddPool(cluster, 1, 3);
  for (uint64_t i = 1; i <= 10; ++i) cluster.Submit(Seeded(i, cluster.now(), 1, 100));
  ASSERT_TRUE(cluster.RunUntilDone(60'000));
  for (int i = 0; i < 60'000 && !cluster.core().replays().idle(); ++i) {
    cluster.Step();
    ASSERT_LE(cluster.core().replays().running().size(), 1u);
  }
  EXPECT_EQ(Compared(cluster), 10);
}

TEST(ReplayTest, TheKeptTokensAreBounded) {
  CoreOptions options = Replaying();
  options.replay.max_tokens = 60;  // one prompt has 51 to 59 tokens
  FakeCluster cluster(options, {}, 8);
  AddPool(cluster, 1, 2);
  for (uint64_t i = 1; i <= 4; ++i) cluster.Submit(Seeded(i, cluster.now(), 1, 1));
  cluster.Submit(Seeded(80, cluster.now(), 1, 1));  // 130 tokens
  RunAll(cluster);
  EXPECT_EQ(Skipped(cluster, ReplaySkip::kTooLong), 1);
  EXPECT_GE(Skipped(cluster, ReplaySkip::kBusy), 1) << "two prompts do not fit together";
  EXPECT_GE(Compared(cluster), 1);
  EXPECT_EQ(cluster.replays().size(), 5u);
  // What was kept has been given back.
  cluster.Submit(Seeded(5, cluster.now(), 1, 1));
  RunAll(cluster);
  EXPECT_FALSE(cluster.replays().back().skipped.has_value());
}

// A sample that a stop string ended is compared up to its end: its replay does not know the string.
TEST(ReplayTest, AStoppedSampleIsComparedUpToItsEnd) {
  FakeCluster cluster(Replaying(), {}, 9);
  AddPool(cluster, 1, 2);
  cluster.Submit(Seeded(1, cluster.now(), 1, 4000));
  auto& client = cluster.clients().at(RequestId(1));
  for (int i = 0; i < 5000 && client.tokens[0].size() < 5; ++i) cluster.Step();
  ASSERT_FALSE(client.outcome.has_value());
  cluster.StopSample(RequestId(1), 0);
  RunAll(cluster);
  ASSERT_EQ(Compared(cluster), 1);
  EXPECT_FALSE(cluster.replays()[0].mismatch.has_value());
}

TEST(ReplayTest, AClientThatFindsTheWorkersFullEndsTheReplay) {
  FakeCluster cluster(Replaying(), {}, 10);
  AddPool(cluster, 1, 2);
  uint64_t id = 1;
  while (TrueLength(RequestId(id), 4000, 0) < 2000) ++id;
  cluster.Submit(Seeded(id, cluster.now(), 1, 4000));
  RunUntilReplay(cluster);
  for (int i = 0; i < 300; ++i) cluster.Step();  // the replay's own hand-off is over
  ASSERT_EQ(cluster.core().replays().running().size(), 1u);
  for (const char* name : {"d0", "d1"}) cluster.FillUntil(name, cluster.now() + milliseconds(300));
  cluster.Submit(Seeded(id + 1, cluster.now(), 1, 4));
  ASSERT_TRUE(cluster.RunUntilDone(60'000));
  ASSERT_FALSE(cluster.replays().empty());
  EXPECT_EQ(cluster.replays()[0].request, RequestId(id));
  EXPECT_EQ(cluster.replays()[0].skipped, ReplaySkip::kBusy);
}

TEST(ReplayTest, AFailingClusterStillServesItsClients) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    FakeCluster cluster(
        Replaying(),
        {.refuse = 0.1, .full = 0.2, .duplicate = 0.1, .crash = 0.0005, .stall = 0.0005},
        seed);
    AddPool(cluster, 2, 3);
    for (uint64_t i = 1; i <= 40; ++i) {
      cluster.Submit(Seeded(i, cluster.now(), 1 + i % 2));
      for (int step = 0; step < 50; ++step) cluster.Step();
    }
    RunAll(cluster);
    EXPECT_EQ(cluster.replays().size(), 40u) << "each request is compared or counted as skipped";
    for (const ReplayResult& result : cluster.replays()) EXPECT_FALSE(result.mismatch.has_value());
    for (const auto& [id, client] : cluster.clients()) ExpectAllOf(client);
    ExpectNothingLeft(cluster);
  }
}

TEST(ReplayTest, ThePinnedWorkersServeOrTheRequestEnds) {
  FakeCluster cluster(Options(), {}, 11);
  AddPool(cluster, 2, 2);
  const auto pinned = [&](uint64_t id, const std::string& prefill, const std::string& decode) {
    auto spec = Spec(id, cluster.now());
    spec->pinned = PinnedWorkers{WorkerId(prefill), WorkerId(decode)};
    cluster.Submit(spec);
    EXPECT_TRUE(cluster.RunUntilDone(60'000));
    return *cluster.clients().at(RequestId(id)).outcome;
  };
  for (uint64_t i = 0; i < 4; ++i) {
    const std::string prefill = i < 2 ? "p0" : "p1";
    const std::string decode = i % 2 == 0 ? "d0" : "d1";
    const Outcome outcome = pinned(i + 1, prefill, decode);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_EQ(outcome.account.prefill_worker, prefill);
    EXPECT_EQ(outcome.account.decode_worker, decode);
  }
  EXPECT_EQ(cluster.pinned_prompts(), 4) << "a slow hand-off must go on";
  EXPECT_EQ(pinned(10, "", "d1").account.prefill_worker, "d1") << "serves alone";
  EXPECT_EQ(pinned(11, "p0", "nobody").status.code(), StatusCode::kNotFound);
  EXPECT_EQ(pinned(12, "p0", "p1").status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pinned(13, "d1", "d1").status.code(), StatusCode::kInvalidArgument);
  cluster.BreakSteps("d1");
  const Outcome failed = pinned(15, "p0", "d1");
  EXPECT_EQ(failed.account.attempts, 1);
  EXPECT_THAT(std::string(Message(failed.status)), ::testing::HasSubstr("is not tried on others"));
  ASSERT_TRUE(cluster.Drain("d0").ok());
  const Outcome draining = pinned(14, "p0", "d0");
  EXPECT_EQ(draining.status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Message(draining.status)), ::testing::HasSubstr("d0 is draining"));
  ExpectNothingLeft(cluster);
}

}  // namespace
}  // namespace baton::router
