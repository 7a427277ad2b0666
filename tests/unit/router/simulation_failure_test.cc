// What the router makes of failures and early ends.
#include <gtest/gtest.h>

#include "tests/unit/router/simulation.h"

namespace baton::router {
namespace {

// The only decode worker gets what it was told to cancel again before it has ended it.
TEST(SimulationFailureTest, ARedirectToTheWorkerThatRefusedIsServed) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    FakeCluster cluster(Options(), {.refuse = 0.7}, seed);
    AddPool(cluster, 1, 1);
    for (uint64_t i = 0; i < 32; ++i) cluster.Submit(Spec(i, cluster.now(), 1 + (i % 3 == 0) * 2));
    ASSERT_TRUE(cluster.RunUntilDone(60'000));
    for (const auto& [id, client] : cluster.clients()) {
      ExpectAllOf(client);
      EXPECT_EQ(client.outcome->account.attempts, 1);  // nothing was left out as a repetition
    }
    ExpectNothingLeft(cluster);
  }
}

TEST(SimulationFailureTest, AWorkersOwnCancelIsNoAnswer) {
  FakeCluster cluster(Options(), {.fail_request = 0.5, .request_code = StatusCode::kCancelled}, 21);
  AddPool(cluster, 1, 2);
  for (uint64_t i = 0; i < 32; ++i) cluster.Submit(Spec(i, cluster.now()));
  ASSERT_TRUE(cluster.RunUntilDone(60'000));
  for (const auto& [id, client] : cluster.clients()) ExpectAllOf(client);
  ExpectNothingLeft(cluster);
}

TEST(SimulationFailureTest, ARequestThatEndsWithItsFirstTokenIsDispatchedOnce) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    FakeCluster cluster(Options(), {.max_delay_ms = 30}, seed);
    AddPool(cluster, 2, 2);
    for (uint64_t i = 0; i < 32; ++i) cluster.Submit(Spec(i, cluster.now(), 1 + i % 2, 1));
    ASSERT_TRUE(cluster.RunUntilDone(5'000));
    for (const auto& [id, client] : cluster.clients()) {
      ExpectAllOf(client);
      EXPECT_EQ(client.outcome->account.attempts, 1);
    }
    EXPECT_EQ(cluster.count(RequestKind::kPrefill), 32);
    EXPECT_EQ(cluster.count(RequestKind::kDecode), 32);
    ExpectNothingLeft(cluster);
  }
}

}  // namespace
}  // namespace baton::router
