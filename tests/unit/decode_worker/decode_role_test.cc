#include "decode_worker/decode_role.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/thread.h"
#include "common/log/log.h"
#include "tests/conformance/memory_transport.h"
#include "tests/fakes/worker_pair.h"

// How a decode worker handles dispatches and offers that do not match.
// tests/integration/handoff_cluster_test checks the tokens.
namespace baton {
namespace {

namespace pb = worker::v1;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DecodeRoleTest : public WorkerPair {
 protected:
  // Waits for an event that no worker reports to the router.
  static void AwaitThat(const std::function<bool()>& condition) {
    const SteadyClock clock;
    const Time until = clock.Now() + std::chrono::seconds(60);
    while (!condition()) {
      ASSERT_LT(clock.Now(), until);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
};

TEST_F(DecodeRoleTest, ASessionBelongsToOneRequest) {
  Start();
  const Request first = Prompt(1);
  SendDecode(first, 7);
  AwaitExpecting(1);
  const Request second = Prompt(2);
  SendDecode(second, 7);
  const pb::Failed failed = AwaitFailed("d", second);
  EXPECT_EQ(failed.code(), static_cast<int>(StatusCode::kAlreadyExists));
  EXPECT_THAT(failed.message(), HasSubstr("session 7"));
  SendPrefill(first, 7);  // the first request is not affected
  ExpectServed(first);
}

TEST_F(DecodeRoleTest, AnOfferOfACancelledRequestIsRefusedAtOnce) {
  Start(Waits(kLongWait), Waits(kLongWait));
  const Request request = Prompt(1);
  SendDecode(request, 1);
  AwaitExpecting(1);
  Cancel("d", request);
  AwaitFailed("d", request);
  SendPrefill(request, 1);  // its OFFER arrives after the cancel
  const auto handoffs = AwaitHandoffs("p", request);
  ASSERT_EQ(handoffs.size(), 1u);
  EXPECT_EQ(handoffs.at(0).outcome(), pb::Handoff::REFUSED);
  EXPECT_THAT(handoffs.at(0).message(), HasSubstr("cancelled"));
  Cancel("p", request);
}

TEST_F(DecodeRoleTest, OffersWithoutADispatchAreBounded) {
  NodeOptions decode = Waits(kLongWait);
  decode.max_unmatched_offers = 1;
  Start(Waits(kLongWait), decode);
  const Request early = Prompt(1);
  SendPrefill(early, 1);
  router_.AwaitEnd("p", 1);  // the offer is sent; one stream keeps the order of both offers
  const Request excess = Prompt(2);
  SendPrefill(excess, 2);
  const auto handoffs = AwaitHandoffs("p", excess);
  EXPECT_EQ(handoffs.at(0).outcome(), pb::Handoff::REFUSED);
  EXPECT_THAT(handoffs.at(0).message(), HasSubstr("1 offers wait"));
  Cancel("p", excess);
  SendDecode(early, 1);  // the first offer still waits
  ExpectServed(early);
}

TEST_F(DecodeRoleTest, AnOfferThatNobodyDispatchesIsRefusedAfterAWhile) {
  Start(Waits(kLongWait), Waits(kSoon));
  const Request orphan = Prompt(1);
  SendPrefill(orphan, 1);
  const auto handoffs = AwaitHandoffs("p", orphan);
  EXPECT_EQ(handoffs.at(0).outcome(), pb::Handoff::REFUSED);
  EXPECT_THAT(handoffs.at(0).message(), HasSubstr("no router dispatched"));
  Cancel("p", orphan);
}

TEST_F(DecodeRoleTest, ADispatchWithoutAnOfferFailsAfterAWhile) {
  Start(Waits(kLongWait), Waits(kSoon));
  const Request lonely = Prompt(1);
  SendDecode(lonely, 1);
  const pb::Failed failed = AwaitFailed("d", lonely);
  EXPECT_THAT(failed.message(), HasSubstr("offered no KV in time"));
  EXPECT_TRUE(failed.retryable());
}

TEST_F(DecodeRoleTest, ACancelThatOnlyThePrefillWorkerHeardOfFreesTheBlocks) {
  NodeOptions decode = Waits(kSoon);
  decode.kv.blocks = 8;  // of 16 tokens
  Start(Waits(kLongWait), decode);
  const Request request = Prompt(1, 100, 4);
  SendDecode(request, 1);
  SendPrefill(request, 1);
  Cancel("p", request);
  router_.Await("d", 1, 1, [](const FakeRouter::WorkerReports& heard) { return heard.over(); });
  pb::ToWorker serve;
  *serve.add_dispatches() =
      MakeDispatch(Prompt(2, 100, 28), pb::Dispatch::SERVE);  // needs all blocks
  router_.Send("d", serve);
  EXPECT_TRUE(router_.AwaitEnd("d", 2).finished.has_value()) << "blocks stayed reserved";
}

TEST_F(DecodeRoleTest, AnOfferOfAnotherLengthThanTheDispatchIsRefused) {
  Start(Waits(kLongWait), Waits(kLongWait));
  // The offer has the same number of blocks but one more token. Either message may arrive first.
  for (const bool dispatch_first : {true, false}) {
    const uint64_t id = dispatch_first ? 1 : 2;
    const Request dispatched = Prompt(id, 90);
    const Request offered = Prompt(id, 91);
    if (dispatch_first) {
      SendDecode(dispatched, id);
      AwaitExpecting(1);
      SendPrefill(offered, id);
    } else {
      SendPrefill(offered, id);
      router_.AwaitEnd("p", id);
      SendDecode(dispatched, id);
    }
    const auto handoffs = AwaitHandoffs("p", offered);
    EXPECT_EQ(handoffs.at(0).outcome(), pb::Handoff::REFUSED);
    EXPECT_THAT(handoffs.at(0).message(), HasSubstr("OFFER is of 91 tokens"));
    EXPECT_THAT(handoffs.at(0).message(), HasSubstr("has 90"));
    Cancel("p", offered);
    Cancel("d", dispatched);
  }
}

TEST_F(DecodeRoleTest, GrantedBlocksStayHeldUntilTheirWindowIsClosed) {
  MemoryFabric fabric;
  NodeOptions options = Waits(kLongWait);
  options.transport = "memory";
  options.make_transport = [&](std::string_view) { return fabric.MakeTransport(); };
  options.times.drain = kLongWait;  // so that the blocks do not enter quarantine
  Start(options, options);
  p_->model().AllowRuns(0);  // so that no SEAL is sent
  const Request request = Prompt(1);
  SendDecode(request, 1);
  SendPrefill(request, 1);
  AwaitThat([&] { return fabric.open_windows() == 1; });
  fabric.HoldCloses();
  Cancel("d", request);
  AwaitThat([&] { return fabric.held_closes() == 1; });
  // When the engine has served this request, it has also handled everything before it.
  pb::ToWorker serve;
  *serve.add_dispatches() = MakeDispatch(Prompt(2), pb::Dispatch::SERVE);
  router_.Send("d", serve);
  EXPECT_TRUE(router_.AwaitEnd("d", 2).finished.has_value());
  EXPECT_EQ(d_->worker().engine().Stats().leases, 1) << "a peer may still write there";
  EXPECT_FALSE(DrainsAtOnce(*d_)) << "a peer may still write there";
  fabric.ReleaseCloses();
  EXPECT_TRUE(d_->worker().Drain(kLongWait));
  Cancel("p", request);
  p_->model().AllowRuns(INT64_MAX);
  for (const auto* node : {&p_, &d_}) {
    (*node)->ExpectNothingHeld();
    (*node)->Stop();  // before the fabric is destroyed
  }
}

// The first hand-off begins a long answer. The second one, whose first write goes through, uses up
// the rate of a minute. The third one therefore waits until nothing is computed any more.
TEST_F(DecodeRoleTest, KvArrivesSlowlyOnlyWhileSequencesAreComputed) {
  NodeOptions decode = Waits(kLongWait);
  decode.receive_rate_while_computing = 10;
  Start(Waits(kLongWait), decode);
  d_->model().AllowRuns(0);
  std::atomic<int64_t> allowed = 0;
  const std::jthread steps = StartThread("steps", [&](const std::stop_token& stop) {
    for (; !stop.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
      d_->model().AllowRuns(++allowed);
    }
  });
  const Request answers[] = {Prompt(1, 90, 200), Prompt(2), Prompt(3)};
  const SteadyClock clock;
  for (const Request& request : answers) {
    SendDecode(request, request.id.value());
    SendPrefill(request, request.id.value());
    if (request.id == RequestId(3)) break;
    router_.Await("d", request.id.value(), 1, [](const FakeRouter::WorkerReports& heard) {
      return !heard.Tokens(0).empty();
    });
  }
  ExpectServed(answers[0]);
  const Time idle = clock.Now();
  EXPECT_FALSE(router_.Get("d", 3).finished.has_value()) << "its KV has arrived at full speed";
  ExpectServed(answers[1]);
  ExpectServed(answers[2]);
  EXPECT_LT(clock.Now() - idle, std::chrono::seconds(5)) << "the bound was not lifted";
}

TEST_F(DecodeRoleTest, FirstTokensThatDoNotFitFailTheHandoff) {
  Start();
  Request two = Prompt(1);
  two.samples = 2;
  SendDecode(two, 1);
  SendPrefill(Prompt(1), 1);  // has one sample, so its SEAL has one first token
  const auto handoffs = AwaitHandoffs("d", two);
  EXPECT_EQ(handoffs.at(0).outcome(), pb::Handoff::FAILED);
  EXPECT_THAT(handoffs.at(0).message(), HasSubstr("first token"));
  EXPECT_FALSE(router_.Get("d", 1).finished.has_value());
}

// In both orders: the decode dispatch arrives before or after the prefill worker has finished.
TEST_F(DecodeRoleTest, ARequestThatEndsWithItsFirstTokenIsDone) {
  testing::internal::CaptureStderr();
  Start(Waits(kLongWait), Waits(kLongWait));
  const Request first = Prompt(3);
  SendDecode(first, 3);
  SendPrefill(first, 3);
  ExpectServed(first);  // so that the two workers are connected
  const Request late = Prompt(1, 90, 1);
  SendPrefill(late, 1);
  EXPECT_EQ(AwaitHandoffs("p", late)[0].outcome(), pb::Handoff::NOT_NEEDED);
  SendDecode(late, 1);
  const Request early = Prompt(2, 90, 1);
  SendDecode(early, 2);
  AwaitExpecting(1);
  SendPrefill(early, 2);
  for (const Request& request : {late, early}) {
    EXPECT_EQ(router_.AwaitEnd("p", request.id.value()).Tokens(0),
              d_->model().Expected(request, 0));
    for (const char* worker : {"p", "d"}) {
      const auto handoffs = AwaitHandoffs(worker, request);
      ASSERT_EQ(handoffs.size(), 1u) << worker;
      EXPECT_EQ(handoffs.at(0).outcome(), pb::Handoff::NOT_NEEDED) << worker;
    }
    EXPECT_FALSE(router_.Get("d", request.id.value()).failed.has_value());
  }
  for (WorkerNode* node : {p_.get(), d_.get()}) {
    const std::string done = "baton_worker_requests_total{outcome=\"done\"} 3";
    const Time limit = SteadyClock().Now() + std::chrono::seconds(60);
    std::string metrics = node->metrics().Serialize();
    while (metrics.find(done) == std::string::npos && SteadyClock().Now() < limit) {
      std::this_thread::yield();
      metrics = node->metrics().Serialize();
    }
    EXPECT_THAT(metrics, HasSubstr(done)) << node->id();
    for (const char* line : {"baton_worker_requests_total{outcome=\"failed\"} 0",
                             "baton_worker_requests_total{outcome=\"cancelled\"} 0",
                             "baton_handoffs_total{outcome=\"failed\"} 0",
                             "baton_handoffs_total{outcome=\"not_needed\"} 2"}) {
      EXPECT_THAT(metrics, HasSubstr(line)) << node->id();
    }
  }
  EXPECT_TRUE(FlushLog(std::chrono::seconds(60)));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(Not(HasSubstr(" warning ")), Not(HasSubstr(" error "))));
}

TEST_F(DecodeRoleTest, ARequestThatCanNeverFitIsRefusedToTheRouterAsWell) {
  NodeOptions decode = Waits(kLongWait);
  decode.kv.blocks = 6;  // of 16 tokens
  Start(Waits(kLongWait), decode);
  const Request request = Prompt(1, 96, 10);
  SendDecode(request, 1);
  const pb::Failed failed = AwaitFailed("d", request);
  EXPECT_EQ(failed.code(), static_cast<int>(StatusCode::kOutOfRange));
  EXPECT_FALSE(failed.retryable());
  EXPECT_THAT(failed.message(), HasSubstr("need 7 KV blocks of 16 tokens; there are 6"));
  SendPrefill(request, 1);
  EXPECT_EQ(AwaitHandoffs("p", request).at(0).outcome(), pb::Handoff::REFUSED);
  Cancel("p", request);
  // A request whose prompt fits is accepted, however long its answer may become.
  const Request fits = Prompt(2, 80, 200);
  SendDecode(fits, 2);
  SendPrefill(fits, 2);
  const FakeRouter::WorkerReports heard = router_.AwaitEnd("d", 2);
  ASSERT_TRUE(heard.finished.has_value()) << heard.Ending();
  EXPECT_EQ(heard.Tokens(0).size(), 96u + 1 - 80 - 1);  // the prefill worker sends the first one
}

TEST_F(DecodeRoleTest, ALostRouterLeavesNothingBehind) {
  Start(Waits(kLongWait), Waits(kLongWait));
  const Request waiting = Prompt(1);
  SendDecode(waiting, 1);
  AwaitExpecting(1);
  router_.Drop("d");
  d_->ExpectNothingHeld();
  router_.AwaitJoin("d");
  const Request next = Prompt(2);
  SendDecode(next, 2);
  SendPrefill(next, 2);
  ExpectServed(next);
}

}  // namespace
}  // namespace baton
