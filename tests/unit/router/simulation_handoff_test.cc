// The router's reaction to hand-offs that are refused or fail.
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/router/simulation.h"

namespace baton::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

using ::testing::HasSubstr;

// A cluster in which hand-offs between some workers cannot succeed: the control stream cannot be
// opened (the prefill worker reports a refusal), or no data passes (it reports a failure).
class SeveredTest : public testing::TestWithParam<bool> {
 protected:
  static constexpr int32_t kTokens = 40;

  void Sever(const std::string& prefill, const std::string& decode, Time until = kNever) {
    cluster_.Sever(prefill, decode, {until, /*only_data=*/GetParam()});
  }
  void Heal(const std::string& prefill, const std::string& decode) {
    Sever(prefill, decode, cluster_.now());
  }
  // Serves one request, which must receive all of its tokens. The request has at least 8 tokens: a
  // prefill worker computes one token in each attempt, and could else serve it without a hand-off.
  RequestAccount Serve(int limit_ms = 3'000) {
    while (TrueLength(RequestId(next_), kTokens, 0) < 8) ++next_;
    const uint64_t id = next_++;
    auto spec = Spec(id, cluster_.now(), 1, kTokens);
    spec->prompt = std::vector<TokenId>(50, static_cast<TokenId>(id));  // cached nowhere
    cluster_.Submit(std::move(spec));
    EXPECT_TRUE(cluster_.RunUntilDone(limit_ms)) << "request " << id;
    const FakeCluster::Client& client = cluster_.clients().at(RequestId(id));
    ExpectAllOf(client);
    return client.outcome.has_value() ? client.outcome->account : RequestAccount();
  }
  void Wait(Duration time) {
    for (const Time end = cluster_.now() + time; cluster_.now() < end;) cluster_.Step();
  }
  static bool Alone(const RequestAccount& account) {
    return account.prefill_worker == account.decode_worker;
  }

  FakeCluster cluster_{Options(), {}, 40};
  uint64_t next_ = 3;
};

INSTANTIATE_TEST_SUITE_P(All, SeveredTest, testing::Bool(), [](const auto& tested) {
  return std::string(tested.param ? "Data" : "Control");
});

TEST_P(SeveredTest, ARequestIsServedAloneAfterThreeHandOffsThatFailed) {
  AddPool(cluster_, 1, 1);
  Sever("p0", "d0");
  const RequestAccount first = Serve();
  EXPECT_TRUE(Alone(first));
  EXPECT_EQ(cluster_.handoffs("p0", "d0"), 3);
  EXPECT_LT(first.ttft_ms, 1'000);
  // The next requests do not try.
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Alone(Serve()));
  EXPECT_EQ(cluster_.handoffs("p0", "d0"), 3);
  ExpectNothingLeft(cluster_);
}

// A firewall that drops packets shows only after a time-out.
TEST_P(SeveredTest, ARequestIsServedAloneAfterOneHandOffThatFailedLate) {
  AddPool(cluster_, 1, 1);
  cluster_.Sever("p0", "d0", {kNever, GetParam(), seconds(5)});
  const RequestAccount first = Serve(7'000);
  EXPECT_TRUE(Alone(first));
  EXPECT_EQ(cluster_.handoffs("p0", "d0"), 1);
  ExpectNothingLeft(cluster_);
}

// Every link is slow, which shows after some seconds. Requests do not go from pair to pair for
// ever.
TEST_P(SeveredTest, RequestsAreServedAloneWhenNoPairIsFastEnough) {
  AddPool(cluster_, 2, 2);
  for (const char* prefill : {"p0", "p1"}) {
    for (const char* decode : {"d0", "d1"}) {
      cluster_.Sever(prefill, decode, {kNever, GetParam(), milliseconds(3500)});
    }
  }
  for (uint64_t i = 0; i < 32; ++i) cluster_.Submit(Spec(i, cluster_.now()));
  ASSERT_TRUE(cluster_.RunUntilDone(12'000));
  int handoffs = 0;
  for (const auto& [id, client] : cluster_.clients()) ExpectAllOf(client);
  for (const char* prefill : {"p0", "p1"}) {
    for (const char* decode : {"d0", "d1"}) handoffs += cluster_.handoffs(prefill, decode);
  }
  EXPECT_LE(handoffs, 2 * 32) << "the second one takes 4 s together with the first one";
  ExpectNothingLeft(cluster_);
}

TEST_P(SeveredTest, RequestsOfOneMomentAreOneFailure) {
  AddPool(cluster_, 1, 1);
  Sever("p0", "d0");
  for (uint64_t i = 0; i < 32; ++i) cluster_.Submit(Spec(i, cluster_.now()));
  ASSERT_TRUE(cluster_.RunUntilDone(5'000));
  for (const auto& [id, client] : cluster_.clients()) ExpectAllOf(client);
  EXPECT_LE(cluster_.handoffs("p0", "d0"), 3 * 32);
  ASSERT_EQ(cluster_.core().pairs().failing().size(), 1u);
  // Requests whose second hand-off failed later do not prolong the time without end.
  EXPECT_LE(cluster_.core().pairs().failing().begin()->second.failures, 6);
  ExpectNothingLeft(cluster_);
}

TEST_P(SeveredTest, BothDecodeWorkersBeyondTheReachOfTheOnlyPrefillWorker) {
  AddPool(cluster_, 1, 2);
  Sever("p0", "d0");
  Sever("p0", "d1");
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Alone(Serve()));
  EXPECT_LE(cluster_.handoffs("p0", "d0") + cluster_.handoffs("p0", "d1"), 6);
  ExpectNothingLeft(cluster_);
}

TEST_P(SeveredTest, ARequestTriesThreeOfManyDecodeWorkersBeyondReach) {
  AddPool(cluster_, 1, 8);
  for (int i = 0; i < 8; ++i) Sever("p0", fmt::format("d{}", i));
  EXPECT_TRUE(Alone(Serve()));
  int handoffs = 0;
  for (int i = 0; i < 8; ++i) handoffs += cluster_.handoffs("p0", fmt::format("d{}", i));
  EXPECT_EQ(handoffs, 3);
  ExpectNothingLeft(cluster_);
}

TEST_P(SeveredTest, RequestsUseThePrefillWorkerThatReachesTheDecodeWorker) {
  AddPool(cluster_, 2, 1);
  Sever("p0", "d0");
  int alone = 0;
  for (int i = 0; i < 16; ++i) alone += Alone(Serve()) ? 1 : 0;
  EXPECT_LE(alone, 1);
  EXPECT_LE(cluster_.handoffs("p0", "d0"), 3);
  EXPECT_GE(cluster_.handoffs("p1", "d0"), 15);
  ExpectNothingLeft(cluster_);
}

TEST_P(SeveredTest, RequestsUseTheDecodeWorkerThatIsReached) {
  AddPool(cluster_, 1, 2);
  Sever("p0", "d0");
  for (int i = 0; i < 16; ++i) EXPECT_EQ(Serve().decode_worker, "d1");
  EXPECT_LE(cluster_.handoffs("p0", "d0"), 1);
  ExpectNothingLeft(cluster_);
}

// The time until the next try doubles with each failure. Each try is one hand-off of one request,
// also when many requests arrive.
TEST_P(SeveredTest, APairIsTriedAgainAfterAWhileAndIsNormalAfterASuccess) {
  AddPool(cluster_, 1, 1);
  Sever("p0", "d0");
  EXPECT_TRUE(Alone(Serve()));
  ASSERT_EQ(cluster_.handoffs("p0", "d0"), 3);
  for (int tries = 1; tries <= 2; ++tries) {
    const Duration pause = seconds(4 << tries);
    Wait(pause * 3 / 4);
    EXPECT_TRUE(Alone(Serve()));
    EXPECT_EQ(cluster_.handoffs("p0", "d0"), 2 + tries) << "too early";
    Wait(pause / 4);
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(Alone(Serve())) << tries;
    EXPECT_EQ(cluster_.handoffs("p0", "d0"), 3 + tries);
  }
  Heal("p0", "d0");
  EXPECT_TRUE(Alone(Serve())) << "the pair is still avoided";
  Wait(seconds(32));
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(Alone(Serve()));
  EXPECT_TRUE(cluster_.core().pairs().failing().empty());
  // The next failure is the first one again.
  Sever("p0", "d0");
  EXPECT_TRUE(Alone(Serve()));
  EXPECT_EQ(cluster_.handoffs("p0", "d0"), 5 + 4 + 3);
  ExpectNothingLeft(cluster_);
}

// While the first request tries the pair, the others do not.
TEST_P(SeveredTest, OneRequestTriesAPair) {
  AddPool(cluster_, 1, 1);
  Sever("p0", "d0");
  Serve();
  Wait(seconds(9));
  for (uint64_t i = 100; i < 116; ++i) cluster_.Submit(Spec(i, cluster_.now()));
  ASSERT_TRUE(cluster_.RunUntilDone(5'000));
  for (const auto& [id, client] : cluster_.clients()) ExpectAllOf(client);
  EXPECT_EQ(cluster_.handoffs("p0", "d0"), 3 + 1);
  ExpectNothingLeft(cluster_);
}

TEST_P(SeveredTest, AnErrorNamesThePairAndTheReason) {
  AddPool(cluster_, 1, 1);
  Sever("p0", "d0");
  auto spec = Spec(3, cluster_.now());
  spec->deadline = cluster_.now() + milliseconds(45);
  cluster_.Submit(spec);
  ASSERT_TRUE(cluster_.RunUntilDone(1'000));
  const Outcome& outcome = *cluster_.clients().at(spec->id).outcome;
  EXPECT_EQ(outcome.status.code(), StatusCode::kDeadlineExceeded);
  const std::string message(Message(outcome.status));
  EXPECT_THAT(message, HasSubstr("the KV hand-off from prefill worker p0 to decode worker d0"));
  EXPECT_THAT(
      message,
      HasSubstr(GetParam() ? "failed: no data channel"
                           : "was refused: decode worker 'd0' at fake:1 cannot be reached"));
  EXPECT_THAT(message, Not(HasSubstr("KV memory")));
  ExpectNothingLeft(cluster_);
}

TEST_P(SeveredTest, AWorkerThatJoinsAgainIsNotAvoided) {
  AddPool(cluster_, 1, 1);
  Sever("p0", "d0");
  Serve();
  cluster_.Kill("d0", 50);
  Heal("p0", "d0");
  Wait(milliseconds(200));
  EXPECT_FALSE(Alone(Serve()));
}

// A refusal because the worker is full says nothing about the connection.
TEST(SimulationHandoffTest, AFullWorkerIsWaitedFor) {
  FakeCluster cluster(Options(), {}, 42);
  AddPool(cluster, 1, 1);
  cluster.FillUntil("d0", cluster.now() + seconds(20));
  for (uint64_t i = 1; i < 16; ++i) cluster.Submit(Spec(i, cluster.now()));
  ASSERT_TRUE(cluster.RunUntilDone(40'000));
  for (const auto& [id, client] : cluster.clients()) {
    ExpectAllOf(client);
    EXPECT_EQ(client.outcome->account.attempts, 1);
  }
  EXPECT_TRUE(cluster.core().pairs().failing().empty());
  ExpectNothingLeft(cluster);
}

// The worker that cannot be reached, d0, has the lowest load.
TEST(SimulationHandoffTest, ARedirectGoesBackToAFullWorkerRatherThanToOneOutOfReach) {
  FakeCluster cluster(Options(), {}, 41);
  AddPool(cluster, 1, 2);
  cluster.Sever("p0", "d0", {kNever});
  cluster.FillUntil("d1", cluster.now() + seconds(2));
  for (uint64_t i = 0; i < 16; ++i) cluster.Submit(Spec(i, cluster.now(), 1, 20'000));
  ASSERT_TRUE(cluster.RunUntilDone(50'000));
  for (const auto& [id, client] : cluster.clients()) ExpectAllOf(client);
  ExpectNothingLeft(cluster);
}

}  // namespace
}  // namespace baton::router
