// The router's reaction to hand-offs that are refused.
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/router/simulation.h"

namespace baton::router {
namespace {

using std::chrono::seconds;

using ::testing::HasSubstr;

TEST(SimulationHandoffTest, ARequestWhoseHandOffReachesNoDecodeWorkerEndsAndSaysSo) {
  for (const int prefill : {1, 2}) {
    SCOPED_TRACE(prefill);
    FakeCluster cluster(Options(), {}, 40);
    AddPool(cluster, prefill, 1);
    cluster.HideUntil("d0", kNever);
    const auto spec = Spec(3, cluster.now());
    ASSERT_GT(TrueLength(spec->id, spec->max_tokens, 0), 1);
    cluster.Submit(spec);
    ASSERT_TRUE(cluster.RunUntilDone(60'000));
    const Outcome& outcome = *cluster.clients().at(RequestId(3)).outcome;
    EXPECT_EQ(outcome.status.code(), StatusCode::kUnavailable);
    EXPECT_TRUE(outcome.retryable);
    EXPECT_THAT(std::string(Message(outcome.status)),
                HasSubstr("decode worker 'd0' at fake:1 cannot be reached"));
    EXPECT_THAT(std::string(Message(outcome.status)), HasSubstr("(failure 4 of 4)"));
    ExpectNothingLeft(cluster);
  }
}

// The worker that cannot be reached, d0, has the lowest load.
TEST(SimulationHandoffTest, ARedirectGoesBackToAFullWorkerRatherThanToOneOutOfReach) {
  FakeCluster cluster(Options(), {}, 41);
  AddPool(cluster, 1, 2);
  cluster.HideUntil("d0", kNever);
  cluster.FillUntil("d1", cluster.now() + seconds(2));
  for (uint64_t i = 0; i < 16; ++i) cluster.Submit(Spec(i, cluster.now(), 1, 20'000));
  ASSERT_TRUE(cluster.RunUntilDone(50'000));
  for (const auto& [id, client] : cluster.clients()) ExpectAllOf(client);
  ExpectNothingLeft(cluster);
}

// One request finds out that p0 does not reach d0.
TEST(SimulationHandoffTest, WorkersOutOfReachAreTriedAgainOnlyAfterSomeTime) {
  CoreOptions options = Options();
  options.policy = PolicyKind::kRoundRobin;
  FakeCluster cluster(options, {}, 44);
  AddPool(cluster, 1, 2);
  cluster.HideUntil("d0", cluster.now() + seconds(5));
  uint64_t next = 0;
  int64_t refusals = 0;
  std::set<std::string> used;
  const auto serve = [&](int count) {
    refusals = 0;
    used.clear();
    for (int i = 0; i < count; ++i) {
      const uint64_t id = next++;
      cluster.Submit(Spec(id, cluster.now()));
      ASSERT_TRUE(cluster.RunUntilDone(2'000));
      const RequestAccount& account = cluster.clients().at(RequestId(id)).outcome->account;
      refusals += account.refusals;
      used.insert(account.decode_worker);
    }
  };
  serve(8);
  EXPECT_EQ(refusals, 1);
  EXPECT_EQ(used, std::set<std::string>{"d1"});
  for (int ms = 0; ms < 12'000; ++ms) cluster.Step();
  serve(8);
  EXPECT_EQ(refusals, 0);
  EXPECT_EQ(used.count("d0"), 1u) << "it can be reached again";
  ExpectNothingLeft(cluster);
}

// After a successful hand-off a refusal means that the link is broken, which says nothing about the
// request.
TEST(SimulationHandoffTest, ABrokenLinkThatWorkedBeforeIsWaitedFor) {
  FakeCluster cluster(Options(), {}, 42);
  AddPool(cluster, 1, 1);
  cluster.Submit(Spec(1, cluster.now()));
  ASSERT_TRUE(cluster.RunUntilDone(5'000));
  cluster.HideUntil("d0", cluster.now() + seconds(40));
  for (uint64_t i = 2; i < 16; ++i) cluster.Submit(Spec(i, cluster.now()));
  ASSERT_TRUE(cluster.RunUntilDone(60'000));
  for (const auto& [id, client] : cluster.clients()) {
    ExpectAllOf(client);
    EXPECT_EQ(client.outcome->account.attempts, 1);
  }
  ExpectNothingLeft(cluster);
}

// The address of a new worker may not be known everywhere at once.
TEST(SimulationHandoffTest, ADecodeWorkerThatIsReachedLateIsWaitedFor) {
  FakeCluster cluster(Options(), {}, 43);
  AddPool(cluster, 1, 1);
  cluster.HideUntil("d0", cluster.now() + seconds(10));
  for (uint64_t i = 0; i < 16; ++i) cluster.Submit(Spec(i, cluster.now()));
  ASSERT_TRUE(cluster.RunUntilDone(60'000));
  for (const auto& [id, client] : cluster.clients()) ExpectAllOf(client);
  ExpectNothingLeft(cluster);
}

}  // namespace
}  // namespace baton::router
