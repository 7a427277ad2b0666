// The router's reaction to failures: which of them count as attempts, which end a request, and what
// a request waits for.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/request_error.h"
#include "tests/unit/router/simulation.h"

namespace baton::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

using ::testing::HasSubstr;

const Outcome& OutcomeOf(FakeCluster& cluster, uint64_t id) {
  return *cluster.clients().at(RequestId(id)).outcome;
}

// Checks that all requests but the culprit were served. Returns the number of those that took more
// than one attempt.
int ServedAgain(FakeCluster& cluster, RequestId culprit) {
  int neighbours = 0;
  for (const auto& [id, client] : cluster.clients()) {
    if (id == culprit) continue;
    ExpectAllOf(client);
    neighbours += client.outcome->account.attempts > 1 ? 1 : 0;
  }
  return neighbours;
}

// ---- losses

// The only decode worker receives a part again before it has ended the same part, which the router
// cancelled.
TEST(SimulationFailureTest, ARedirectToTheWorkerThatRefusedIsServed) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    FakeCluster cluster(Options(), {.full = 0.7}, seed);
    AddPool(cluster, 1, 1);
    for (uint64_t i = 0; i < 32; ++i) cluster.Submit(Spec(i, cluster.now(), 1 + (i % 3 == 0) * 2));
    ASSERT_TRUE(cluster.RunUntilDone(60'000));
    for (const auto& [id, client] : cluster.clients()) {
      ExpectAllOf(client);
      EXPECT_EQ(client.outcome->account.attempts, 1);  // no dispatch was ignored as a repetition
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

// All four workers are lost one after the other, so that requests move from one lost worker to the
// next.
void LoseAll(FakeCluster& cluster, int down_ms) {
  for (const char* name : {"p0", "d0", "p1", "d1"}) {
    cluster.Kill(name, down_ms);
    for (int i = 0; i < 45; ++i) cluster.Step();
  }
}

TEST(SimulationFailureTest, LosingAllWorkersAgainAndAgainEndsNoRequest) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    FakeCluster cluster(Options(), {}, seed);
    AddPool(cluster, 2, 2);
    for (uint64_t i = 0; i < 32; ++i) {
      cluster.Submit(Spec(i, cluster.now(), 1, 2000));
    }
    for (int round = 0; round < 5; ++round) {
      for (int i = 0; i < 20; ++i) cluster.Step();
      LoseAll(cluster, 5'000);
      for (int i = 0; i < 5'000; ++i) cluster.Step();
    }
    ASSERT_TRUE(cluster.RunUntilDone(60'000));
    int32_t attempts = 0;
    for (const auto& [id, client] : cluster.clients()) {
      ExpectAllOf(client);
      attempts = std::max(attempts, client.outcome->account.attempts);
    }
    EXPECT_GT(attempts, Options().retry.max_attempts) << "no request was lost often enough";
    ExpectNothingLeft(cluster);
  }
}

TEST(SimulationFailureTest, ALostRequestIsNotDispatchedWithoutPause) {
  FakeCluster cluster(Options(), {.fail_request = 1}, 22);  // all workers answer Unavailable
  AddPool(cluster, 0, 2);
  auto spec = Spec(1, cluster.now());
  spec->deadline = cluster.now() + seconds(20);
  cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilDone(21'000));
  const Outcome& outcome = OutcomeOf(cluster, 1);
  EXPECT_EQ(outcome.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(Message(outcome.status)), HasSubstr("before that: full"));
  EXPECT_GT(outcome.account.attempts, 4);
  EXPECT_LT(outcome.account.attempts, 60);  // two a second, and more at the beginning
  ExpectNothingLeft(cluster);
}

// The neighbours of the culprit lose their workers with it and are dispatched to others. The first
// token, which a prefill worker sends each time, is not progress of the decode part that ends
// workers.
TEST(SimulationFailureTest, ARequestThatEndsItsWorkersIsContainedAndItsNeighboursServed) {
  struct Setup {
    int prefill;
    bool decode_only;
  };
  for (const Setup setup : {Setup{0, false}, Setup{2, false}, Setup{2, true}}) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(fmt::format("{} prefill workers, {}, seed {}",
                               setup.prefill,
                               setup.decode_only ? "decode only" : "any worker",
                               seed));
      FakeCluster cluster(Options(), {}, seed);
      AddPool(cluster, setup.prefill, 3);
      const RequestId culprit(12);
      cluster.MakeDeadly(culprit, setup.decode_only);
      for (uint64_t i = 0; i < 32; ++i) cluster.Submit(Spec(i, cluster.now(), 1 + i % 2, 100));
      ASSERT_TRUE(cluster.RunUntilDone(60'000));
      const int neighbours = ServedAgain(cluster, culprit);
      EXPECT_GT(neighbours, 3) << "the culprit was alone";
      const Outcome& outcome = OutcomeOf(cluster, 12);
      EXPECT_EQ(outcome.status.code(), StatusCode::kInternal) << outcome.status;
      EXPECT_FALSE(outcome.retryable);
      EXPECT_THAT(std::string(Message(outcome.status)),
                  HasSubstr("5 worker processes were lost in a row with this request"));
      EXPECT_EQ(cluster.deaths(), 5);
      ExpectNothingLeft(cluster);
    }
  }
}

// From the third loss on, losses are at least 5 s apart (loss_pause). That is longer than an outage
// in which one worker after the other is lost.
TEST(SimulationFailureTest, ARequestThatLostManyWorkersAtOnceIsTriedLater) {
  for (const char* prefix : {"d", "p"}) {
    SCOPED_TRACE(prefix);
    FakeCluster cluster(Options(), {}, 30);
    AddPool(cluster, 10, 10);
    auto spec = Spec(1, cluster.now(), 1, 100);
    cluster.Submit(spec);
    const Time begin = cluster.now();
    // Kills one worker after the other, each as soon as it has the request.
    for (int lost = 0; lost < 8 && cluster.now() < begin + seconds(2);) {
      cluster.Step();
      for (int i = 0; i < 10; ++i) {
        const std::string name = fmt::format("{}{}", prefix, i);
        if (!cluster.Has(name, spec->id)) continue;
        cluster.Kill(name, 1'000);
        ++lost;
      }
    }
    EXPECT_FALSE(cluster.clients().at(spec->id).outcome.has_value());
    ASSERT_TRUE(cluster.RunUntilDone(10'000));
    ExpectAllOf(cluster.clients().at(spec->id));
    ExpectNothingLeft(cluster);
  }
}

TEST(SimulationFailureTest, AProcessThatComesBackUnchangedWasNotLost) {
  FakeCluster cluster(Options(), {}, 31);
  AddPool(cluster, 0, 1);
  const auto spec = Spec(1, cluster.now(), 1, 100);
  cluster.Submit(spec);
  for (int cut = 0; cut < 20; ++cut) {
    for (int i = 0; i < 1'000 && !cluster.Has("d0", spec->id); ++i) cluster.Step();
    ASSERT_TRUE(cluster.Has("d0", spec->id)) << "after " << cut << " cuts";
    cluster.CutStream("d0", 50);
  }
  ASSERT_TRUE(cluster.RunUntilDone(5'000));
  ExpectAllOf(cluster.clients().at(spec->id));
  EXPECT_EQ(OutcomeOf(cluster, 1).account.attempts, 21);
  ExpectNothingLeft(cluster);
}

TEST(SimulationFailureTest, TheBoundOfLostWorkersCanBeLifted) {
  CoreOptions options = Options();
  options.retry.max_worker_losses = 0;
  FakeCluster cluster(options, {}, 32);
  AddPool(cluster, 0, 2);
  cluster.MakeDeadly(RequestId(1), false);
  cluster.Submit(Spec(1, cluster.now()));
  ASSERT_TRUE(cluster.RunUntilDone(125'000));
  EXPECT_EQ(OutcomeOf(cluster, 1).status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_GT(cluster.deaths(), 10);
  ExpectNothingLeft(cluster);
}

// ---- failures

TEST(SimulationFailureTest, FailuresAreBounded) {
  CoreOptions options = Options();
  options.retry.max_attempts = 3;
  FakeCluster cluster(
      options, {.fail_request = 1, .request_code = StatusCode::kResourceExhausted}, 7);
  AddPool(cluster, 1, 1);
  cluster.Submit(Spec(1, cluster.now()));
  ASSERT_TRUE(cluster.RunUntilDone(5'000));
  const Outcome& outcome = OutcomeOf(cluster, 1);
  EXPECT_EQ(outcome.status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(Message(outcome.status)), HasSubstr("(failure 3 of 3)"));
  EXPECT_TRUE(outcome.retryable);
  EXPECT_EQ(outcome.account.attempts, 3);
  ExpectNothingLeft(cluster);
}

TEST(SimulationFailureTest, ARequestWhoseStepsFailOnTwoWorkersIsNotGivenToAThird) {
  FakeCluster cluster(Options(), {.fail_request = 1, .request_code = StatusCode::kInternal}, 23);
  AddPool(cluster, 0, 4);
  cluster.Submit(Spec(1, cluster.now()));
  ASSERT_TRUE(cluster.RunUntilDone(5'000));
  const Outcome& outcome = OutcomeOf(cluster, 1);
  EXPECT_EQ(outcome.status.code(), StatusCode::kInternal);
  EXPECT_FALSE(outcome.retryable);
  EXPECT_EQ(outcome.account.attempts, 2);
  EXPECT_EQ(cluster.count(RequestKind::kServe), 2);
  const std::string message(Message(outcome.status));
  int named = 0;
  for (const char* worker : {"d0", "d1", "d2", "d3"}) {
    named += message.find(worker) != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(named, 2) << message;
  ExpectNothingLeft(cluster);
}

// Steps fail on the decode workers only; the prefill worker sends a first token in each attempt.
TEST(SimulationFailureTest, TokensOfAPrefillWorkerDoNotHideFailedStepsOfDecodeWorkers) {
  FakeCluster cluster(Options(), {}, 24);
  AddPool(cluster, 1, 3);
  for (const char* worker : {"d0", "d1", "d2"}) cluster.BreakSteps(worker);
  for (uint64_t i = 0; i < 8; ++i) cluster.Submit(Spec(i, cluster.now(), 1, 200));
  ASSERT_TRUE(cluster.RunUntilDone(5'000));
  for (const auto& [id, client] : cluster.clients()) {
    EXPECT_EQ(client.outcome->status.code(), StatusCode::kInternal);
    EXPECT_EQ(client.outcome->account.attempts, 2);
  }
  ExpectNothingLeft(cluster);
}

TEST(SimulationFailureTest, AWorkerWhoseStepsFailCostsNoRequest) {
  FakeCluster cluster(Options(), {}, 25);
  AddPool(cluster, 1, 3);
  cluster.BreakSteps("d1");
  for (uint64_t i = 0; i < 32; ++i) cluster.Submit(Spec(i, cluster.now()));
  ASSERT_TRUE(cluster.RunUntilDone(5'000));
  for (const auto& [id, client] : cluster.clients()) ExpectAllOf(client);
  ExpectNothingLeft(cluster);
}

// Requests in the same step as the culprit fail with it, but not twice.
TEST(SimulationFailureTest, ARequestThatFailsStepsEndsAloneWithItsNeighboursServed) {
  for (const int prefill : {0, 1}) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(fmt::format("{} prefill workers, seed {}", prefill, seed));
      FakeCluster cluster(Options(), {}, seed);
      AddPool(cluster, prefill, 3);
      const RequestId culprit(12);
      cluster.Poison(culprit);
      for (uint64_t i = 0; i < 32; ++i) cluster.Submit(Spec(i, cluster.now(), 1 + i % 2, 100));
      ASSERT_TRUE(cluster.RunUntilDone(20'000));
      const int neighbours = ServedAgain(cluster, culprit);
      EXPECT_EQ(OutcomeOf(cluster, 12).status.code(), StatusCode::kInternal);
      EXPECT_EQ(OutcomeOf(cluster, 12).account.attempts, 2);
      EXPECT_GT(neighbours, 3) << "the culprit was alone";
      ExpectNothingLeft(cluster);
    }
  }
}

// With one worker, each suspect waits until the one before it has a token.
TEST(SimulationFailureTest, ASuspectFollowsAnotherAtOnce) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    FakeCluster cluster(Options(), {}, seed);
    AddPool(cluster, 0, 1);
    const RequestId culprit(31);
    cluster.Poison(culprit);
    for (uint64_t i = 0; i < culprit.value(); ++i) cluster.Submit(Spec(i, cluster.now(), 1, 400));
    for (int i = 0; i < 30; ++i) cluster.Step();
    cluster.Submit(Spec(culprit.value(), cluster.now()));
    ASSERT_TRUE(cluster.RunUntilDone(4'000));
    EXPECT_GT(ServedAgain(cluster, culprit), 15);
    ExpectNothingLeft(cluster);
  }
}

// ---- workers that cannot hold a request

TEST(SimulationFailureTest, ARefusalForGoodEndsTheRequestAtOnceWithItsMessage) {
  for (const int prefill : {0, 1}) {
    SCOPED_TRACE(prefill);
    FakeCluster cluster(Options(), {}, 26);
    AddPool(cluster, prefill, 2);
    cluster.RefuseForGood("d0");
    cluster.RefuseForGood("d1");
    for (uint64_t i = 0; i < 8; ++i) cluster.Submit(Spec(i, cluster.now(), 1 + i % 2));
    ASSERT_TRUE(cluster.RunUntilDone(500));
    for (const auto& [id, client] : cluster.clients()) {
      EXPECT_EQ(client.outcome->status.code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(Message(client.outcome->status), "it needs 9 blocks; there are 4");
      EXPECT_FALSE(client.outcome->retryable);
    }
    ExpectNothingLeft(cluster);
  }
}

TEST(SimulationFailureTest, AWorkerThatCanHoldItIsFoundAmongThoseThatRefuseForGood) {
  for (const int prefill : {0, 1}) {
    SCOPED_TRACE(prefill);
    FakeCluster cluster(Options(), {}, 27);
    AddPool(cluster, prefill, 3);
    cluster.RefuseForGood("d0");
    cluster.RefuseForGood("d2");
    for (uint64_t i = 0; i < 16; ++i) cluster.Submit(Spec(i, cluster.now()));
    ASSERT_TRUE(cluster.RunUntilDone(5'000));
    for (const auto& [id, client] : cluster.clients()) {
      ExpectAllOf(client);
      EXPECT_EQ(client.outcome->account.decode_worker, "d1");
    }
    ExpectNothingLeft(cluster);
  }
}

// The worker that could hold the request is lost, and the remaining worker can never hold prompt +
// tokens so far.
TEST(SimulationFailureTest, AResumedRequestThatNobodyCanHoldEndsAtOnce) {
  FakeCluster cluster(Options(), {}, 28);
  cluster.AddWorker("d0", false, true);
  cluster.RefuseForGood("d1");
  const auto spec = Spec(3, cluster.now(), 1, 1000);
  ASSERT_GT(TrueLength(spec->id, spec->max_tokens, 0), 100);
  cluster.Submit(spec);
  for (int i = 0; i < 50; ++i) cluster.Step();
  ASSERT_FALSE(cluster.clients().at(spec->id).tokens[0].empty());
  cluster.AddWorker("d1", false, true);
  cluster.Kill("d0", 1'000'000);
  ASSERT_TRUE(cluster.RunUntilDone(500));
  EXPECT_EQ(OutcomeOf(cluster, 3).status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(OutcomeOf(cluster, 3).status), "it needs 9 blocks; there are 4");
  EXPECT_EQ(ReasonOf(OutcomeOf(cluster, 3).status), reason::kContextLengthExceeded);
}

TEST(SimulationFailureTest, APromptThatFitsNoWorkerIsInvalid) {
  FakeCluster cluster(Options(), {}, 9);
  AddPool(cluster, 1, 1);
  auto spec = Spec(1, cluster.now());
  spec->prompt = std::vector<TokenId>(200'000, 1);
  cluster.Submit(spec);
  ASSERT_TRUE(cluster.clients().at(RequestId(1)).outcome.has_value());
  const Outcome& outcome = OutcomeOf(cluster, 1);
  EXPECT_EQ(outcome.status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(outcome.status), reason::kContextLengthExceeded);
  EXPECT_FALSE(outcome.retryable);
  EXPECT_THAT(std::string(Message(outcome.status)), HasSubstr("prompt of 200000 tokens"));
  EXPECT_THAT(std::string(Message(outcome.status)), HasSubstr("holds 160000 tokens"));
}

TEST(SimulationFailureTest, APromptThatOnlyASilentOrDrainingWorkerCouldHoldWaitsForIt) {
  FakeCluster cluster(Options(), {}, 29);
  cluster.AddWorker("small", false, true, 100);
  cluster.AddWorker("large", false, true);
  const auto long_prompt = [&](uint64_t id) {
    auto spec = Spec(id, cluster.now());
    spec->prompt = std::vector<TokenId>(3'000, 1);
    spec->deadline = cluster.now() + seconds(3);
    return spec;
  };
  cluster.Stall("large", 1'000);
  for (int i = 0; i < 200; ++i) cluster.Step();  // `large` becomes suspect
  cluster.Submit(long_prompt(1));
  ASSERT_TRUE(cluster.RunUntilDone(3'000));
  ExpectAllOf(cluster.clients().at(RequestId(1)));

  ASSERT_TRUE(cluster.Drain("large").ok());
  cluster.Submit(long_prompt(2));
  ASSERT_TRUE(cluster.RunUntilDone(4'000));
  EXPECT_EQ(OutcomeOf(cluster, 2).status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(Message(OutcomeOf(cluster, 2).status)),
              HasSubstr("1 ready, 0 suspect, 0 lost, 1 draining"));
}

// ---- waiting for workers

TEST(SimulationFailureTest, WithoutWorkersARequestWaitsForItsDeadline) {
  FakeCluster cluster(Options(), {}, 5);
  cluster.Submit(Spec(1, cluster.now()));
  cluster.Submit(Spec(2, cluster.now()));
  auto hasty = Spec(3, cluster.now());
  hasty->deadline = cluster.now() + seconds(30);
  cluster.Submit(hasty);
  for (int i = 0; i < 29'000; ++i) cluster.Step();
  for (const auto& [id, client] : cluster.clients()) EXPECT_FALSE(client.outcome.has_value());
  for (int i = 0; i < 2'000; ++i) cluster.Step();
  ASSERT_TRUE(cluster.clients().at(RequestId(3)).outcome.has_value());
  EXPECT_EQ(OutcomeOf(cluster, 3).status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Message(OutcomeOf(cluster, 3).status),
            "the request's timeout of 30.000 s has expired; no worker has joined this router");
  AddPool(cluster, 0, 1);
  ASSERT_TRUE(cluster.RunUntilDone(2'000));
  for (const uint64_t id : {1, 2}) ExpectAllOf(cluster.clients().at(RequestId(id)));
}

TEST(SimulationFailureTest, TheWaitForAWorkerCanBeBounded) {
  CoreOptions options = Options();
  options.retry.worker_wait = seconds(5);
  FakeCluster cluster(options, {}, 5);
  cluster.Submit(Spec(1, cluster.now()));
  for (int i = 0; i < 4'000; ++i) cluster.Step();
  EXPECT_FALSE(cluster.clients().at(RequestId(1)).outcome.has_value());
  ASSERT_TRUE(cluster.RunUntilDone(2'000));
  const Status& status = OutcomeOf(cluster, 1).status;
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(Message(status), "no worker has joined this router");
}

// ---- requests that end with their first token

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
