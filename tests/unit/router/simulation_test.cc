// RouterCore with fake workers and seeded failures: every request ends, and its client receives
// exactly the tokens of a run without failures.
#include "tests/unit/router/simulation.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace baton::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(SimulationTest, AQuietClusterServesEverythingDisaggregated) {
  FakeCluster cluster(Options(), {}, 1);
  AddPool(cluster, 2, 2);
  for (uint64_t i = 0; i < 50; ++i) cluster.Submit(Spec(i, cluster.now(), 1 + i % 4));
  ASSERT_TRUE(cluster.RunUntilDone(5'000));
  for (const auto& [id, client] : cluster.clients()) {
    ExpectAllOf(client);
    EXPECT_EQ(client.outcome->account.attempts, 1);
    EXPECT_GT(client.outcome->account.ttft_ms, 0);
    EXPECT_EQ(client.outcome->account.queue_ms, 1);
    EXPECT_EQ(client.outcome->account.prefill_ms, 2);
    EXPECT_EQ(client.outcome->account.transport, "fake");
  }
  EXPECT_EQ(cluster.count(RequestKind::kPrefill), 50);
  EXPECT_EQ(cluster.count(RequestKind::kDecode), 50);
  EXPECT_EQ(cluster.count(RequestKind::kServe), 0);
  ExpectNothingLeft(cluster);
}

TEST(SimulationTest, WithoutPrefillWorkersDecodeServesAlone) {
  FakeCluster cluster(Options(), {}, 2);
  AddPool(cluster, 0, 2);
  for (uint64_t i = 0; i < 10; ++i) cluster.Submit(Spec(i, cluster.now(), 2));
  ASSERT_TRUE(cluster.RunUntilDone(5'000));
  for (const auto& [id, client] : cluster.clients()) ExpectAllOf(client);
  EXPECT_EQ(cluster.count(RequestKind::kServe), 10);
  ExpectNothingLeft(cluster);
}

struct Case {
  const char* name;
  Chaos chaos;
};

class ChaosTest : public testing::TestWithParam<Case> {};

TEST_P(ChaosTest, EveryRequestGetsItsTokens) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    CoreOptions options = Options();
    // With this many crashes a request can lose five workers in a row without being the cause.
    options.retry.max_worker_losses = 0;
    FakeCluster cluster(options, GetParam().chaos, seed);
    AddPool(cluster, 2, 3);
    for (uint64_t i = 0; i < 32; ++i) {
      cluster.Submit(Spec(i, cluster.now(), 1 + (i % 3 == 0) * 2));
      cluster.Step();
    }
    ASSERT_TRUE(cluster.RunUntilDone(120'000));
    for (const auto& [id, client] : cluster.clients()) ExpectAllOf(client);
    ExpectNothingLeft(cluster);
  }
}

INSTANTIATE_TEST_SUITE_P(All,
                         ChaosTest,
                         testing::Values(Case{"refusals", {.refuse = 0.7}},
                                         Case{"hand_off_failures", {.fail_handoff = 0.4}},
                                         Case{"request_failures", {.fail_request = 0.3}},
                                         Case{"duplicates", {.duplicate = 0.5}},
                                         Case{"delays", {.max_delay_ms = 60}},
                                         Case{"crashes", {.crash = 0.003}},
                                         Case{"stalls", {.stall = 0.003}},
                                         Case{"everything",
                                              {.refuse = 0.2,
                                               .fail_handoff = 0.1,
                                               .fail_request = 0.1,
                                               .duplicate = 0.2,
                                               .crash = 0.001,
                                               .stall = 0.001,
                                               .max_delay_ms = 20}}),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(SimulationTest, CancelledRequestsEndAndLeaveNothing) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    FakeCluster cluster(Options(), {.refuse = 0.2, .crash = 0.001, .max_delay_ms = 20}, seed);
    AddPool(cluster, 2, 2);
    for (uint64_t i = 0; i < 40; ++i) {
      cluster.Submit(Spec(i, cluster.now(), 1 + i % 3));
      cluster.Step();
      const RequestId victim(cluster.random()() % (i + 1));
      cluster.Cancel(victim, Status(StatusCode::kCancelled, "left"));
    }
    ASSERT_TRUE(cluster.RunUntilDone(60'000));
    for (const auto& [id, client] : cluster.clients()) {
      const Status& status = client.outcome->status;
      ASSERT_TRUE(status.ok() || status.code() == StatusCode::kCancelled) << status;
      ExpectPrefixOf(client);
      if (status.ok()) ExpectAllOf(client);
    }
    ExpectNothingLeft(cluster);
  }
}

TEST(SimulationTest, PrefillWorkersMeetDecodeWorkersWheneverEitherJoins) {
  using Names = std::set<std::string>;
  FakeCluster cluster(Options(), {}, 1);
  cluster.AddWorker("p0", true, false);
  cluster.AddWorker("d0", false, true);
  EXPECT_EQ(cluster.MetBy("p0"), (Names{"d0"}));
  cluster.AddWorker("both", true, true);
  cluster.AddWorker("p1", true, false);
  EXPECT_EQ(cluster.MetBy("p0"), (Names{"both", "d0"}));
  EXPECT_EQ(cluster.MetBy("p1"), (Names{"both", "d0"}));
  EXPECT_EQ(cluster.MetBy("both"), (Names{"d0"}));
  EXPECT_EQ(cluster.MetBy("d0"), Names());
}

TEST(SimulationTest, StoppedSamplesEndTheRequestWhenAllHaveEnded) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    FakeCluster cluster(Options(), {.refuse = 0.2, .crash = 0.001}, seed);
    AddPool(cluster, 2, 2);
    for (uint64_t i = 0; i < 20; ++i) cluster.Submit(Spec(i, cluster.now(), 2, 1000));
    for (int step = 0; step < 200; ++step) {
      cluster.Step();
      for (auto& [id, client] : cluster.clients()) {
        for (int32_t s = 0; s < 2; ++s) {
          if (client.tokens[s].size() < 5 || client.finish[s] != FinishReason::kNone) continue;
          client.finish[s] = FinishReason::kStop;
          cluster.StopSample(id, s);
        }
      }
    }
    for (const auto& [id, client] : cluster.clients()) {
      ASSERT_TRUE(client.outcome.has_value());
      ASSERT_TRUE(client.outcome->status.ok());
      ExpectPrefixOf(client);
    }
    ExpectNothingLeft(cluster);
  }
}

TEST(SimulationTest, AStoppedSampleIsNotComputedToTheEndOfTheOthers) {
  constexpr int32_t kWanted = 3;     // tokens of sample 0 before it is stopped
  constexpr int32_t kOnTheWay = 20;  // most tokens computed before the stop reaches the worker
  for (const double refuse : {0.0, 0.6}) {
    FakeCluster cluster(Options(), {.refuse = refuse}, 13);
    AddPool(cluster, 1, 3);
    std::vector<RequestId> asked;
    for (uint64_t i = 0; asked.size() < 10; ++i) {
      const auto spec = Spec(i, cluster.now(), 2, 1000);
      if (TrueLength(spec->id, spec->max_tokens, 0) < 200 ||
          TrueLength(spec->id, spec->max_tokens, 1) < 200)
        continue;
      cluster.Submit(spec);
      asked.push_back(spec->id);
    }
    // With refused hand-offs, sample 0 is stopped before any decode worker has the request.
    const size_t stop_at = refuse > 0 ? 1 : kWanted;
    for (int step = 0; step < 20'000; ++step) {
      cluster.Step();
      for (auto& [id, client] : cluster.clients()) {
        if (client.tokens[0].size() < stop_at || client.finish[0] != FinishReason::kNone) continue;
        client.finish[0] = FinishReason::kStop;
        cluster.StopSample(id, 0);
      }
    }
    for (const RequestId id : asked) {
      const FakeCluster::Client& client = cluster.clients().at(id);
      ASSERT_TRUE(client.outcome.has_value())
          << client.tokens[0].size() << " and " << client.tokens[1].size() << " tokens";
      ASSERT_TRUE(client.outcome->status.ok()) << client.outcome->status;
      EXPECT_EQ(static_cast<int32_t>(client.tokens[1].size()),
                TrueLength(client.spec->id, client.spec->max_tokens, 1));
      EXPECT_LT(cluster.tokens_made(id, 0), kWanted + kOnTheWay);
    }
    ExpectNothingLeft(cluster);
  }
}

TEST(SimulationTest, LosingAllDecodeWorkersWaitsForOneToComeBack) {
  FakeCluster cluster(Options(), {}, 3);
  AddPool(cluster, 1, 1);
  for (uint64_t i = 0; i < 8; ++i) cluster.Submit(Spec(i, cluster.now(), 1, 200));
  for (int i = 0; i < 60; ++i) cluster.Step();
  cluster.Kill("d0");
  ASSERT_TRUE(cluster.RunUntilDone(10'000));
  for (const auto& [id, client] : cluster.clients()) ExpectAllOf(client);
  ExpectNothingLeft(cluster);
}

TEST(SimulationTest, AStalledDecodeWorkerLosesItsRequestsAndItsLateTokensAreStale) {
  FakeCluster cluster(Options(), {}, 4);
  AddPool(cluster, 1, 2);
  for (uint64_t i = 0; i < 8; ++i) cluster.Submit(Spec(i, cluster.now(), 1, 300));
  for (int i = 0; i < 60; ++i) cluster.Step();
  cluster.Stall("d0", 2'000);
  ASSERT_TRUE(cluster.RunUntilDone(20'000));
  int retried = 0;
  for (const auto& [id, client] : cluster.clients()) {
    ExpectAllOf(client);
    retried += client.outcome->account.attempts > 1;
  }
  EXPECT_GT(retried, 0);
  ExpectNothingLeft(cluster);
}

TEST(SimulationTest, AfterAPauseOfTheRouterItselfNoWorkerIsTakenForLost) {
  FakeCluster cluster(Options(), {}, 12);
  AddPool(cluster, 1, 2);
  for (uint64_t i = 0; i < 8; ++i) cluster.Submit(Spec(i, cluster.now(), 1, 300));
  for (int i = 0; i < 60; ++i) cluster.Step();
  cluster.Pause(seconds(10));
  cluster.Tick();  // before the core receives the workers' messages
  ASSERT_TRUE(cluster.RunUntilDone(5'000));
  for (const auto& [id, client] : cluster.clients()) {
    ExpectAllOf(client);
    EXPECT_EQ(client.outcome->account.attempts, 1);
  }
  ExpectNothingLeft(cluster);
}

TEST(SimulationTest, TheDeadlineEndsARequest) {
  FakeCluster cluster(Options(), {}, 6);
  AddPool(cluster, 1, 1);
  auto spec = Spec(1, cluster.now(), 1, 100'000);
  spec->deadline = cluster.now() + milliseconds(300);
  cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilDone(400));
  EXPECT_EQ(cluster.clients().at(RequestId(1)).outcome->status.code(),
            StatusCode::kDeadlineExceeded);
  ExpectNothingLeft(cluster);
}

TEST(SimulationTest, RequestsOverTheLimitAreRefused) {
  CoreOptions options = Options();
  options.max_requests = 4;
  FakeCluster cluster(options, {}, 8);
  AddPool(cluster, 1, 1);
  for (uint64_t i = 0; i < 6; ++i) cluster.Submit(Spec(i, cluster.now()));
  EXPECT_FALSE(cluster.clients().at(RequestId(3)).outcome.has_value());
  EXPECT_EQ(cluster.clients().at(RequestId(4)).outcome->status.code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(cluster.RunUntilDone(5'000));
}

TEST(SimulationTest, AWorkerOfAnotherModelIsRefusedWithBothSidesNamed) {
  FakeCluster cluster(Options(), {}, 10);
  AddPool(cluster, 1, 1);
  WorkerInfo other;
  other.id = WorkerId("other");
  other.model = "another-model";
  other.fingerprint = {1, 2};
  other.block_tokens = 16;
  other.kv_layout = "its layout";
  const auto slot = cluster.core().Join(other, cluster.now());
  EXPECT_EQ(slot.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(Message(slot.status()).find("another-model"), std::string_view::npos);
  EXPECT_NE(Message(slot.status()).find("its layout"), std::string_view::npos);
}

TEST(SimulationTest, ADrainingWorkerFinishesWhatItHasAndGetsNoMore) {
  FakeCluster cluster(Options(), {}, 11);
  AddPool(cluster, 1, 2);
  for (uint64_t i = 0; i < 8; ++i) cluster.Submit(Spec(i, cluster.now(), 1, 100));
  for (int i = 0; i < 30; ++i) cluster.Step();
  ASSERT_TRUE(cluster.Drain("d0").ok());
  EXPECT_EQ(cluster.Drain("nobody").code(), StatusCode::kNotFound);
  for (uint64_t i = 8; i < 16; ++i) cluster.Submit(Spec(i, cluster.now(), 1, 100));
  ASSERT_TRUE(cluster.RunUntilDone(5'000));
  for (const auto& [id, client] : cluster.clients()) {
    ExpectAllOf(client);
    EXPECT_EQ(client.outcome->account.attempts, 1);
    if (id < RequestId(8)) continue;
    EXPECT_EQ(client.outcome->account.decode_worker, "d1");
  }
  ExpectNothingLeft(cluster);
}

}  // namespace
}  // namespace baton::router
