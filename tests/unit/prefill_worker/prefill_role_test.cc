#include "prefill_worker/prefill_role.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/worker_pair.h"

// How a prefill worker handles orders that do not fit, refusals, and decode workers that cannot be
// reached. tests/integration/handoff_cluster_test checks the tokens.
namespace baton {
namespace {

namespace pb = worker::v1;
using ::testing::HasSubstr;

class PrefillRoleTest : public WorkerPair {
 protected:
  // A prefill order whose decode worker cannot be reached.
  void SendToNowhere(const Request& request, uint64_t session, uint32_t timeout_ms = 0) {
    pb::Dispatch order = Order(request, pb::Dispatch::PREFILL, session);
    order.mutable_peer()->set_worker_id("ghost");
    order.mutable_peer()->set_kv_address("127.0.0.1:1");
    order.set_timeout_ms(timeout_ms);
    Send("p", order);
  }
};

TEST_F(PrefillRoleTest, ASessionBelongsToOneRequest) {
  Start(Waits(kLongWait), Waits(kLongWait));
  const Request first = Prompt(1);
  SendPrefill(first, 7);
  router_.AwaitEnd("p", 1);
  const Request second = Prompt(2);
  SendPrefill(second, 7);
  const pb::Failed failed = AwaitFailed("p", second);
  EXPECT_EQ(failed.code(), static_cast<int>(StatusCode::kAlreadyExists));
  EXPECT_THAT(failed.message(), HasSubstr("session 7"));
  SendDecode(first, 7);
  ExpectServed(first);
}

TEST_F(PrefillRoleTest, ARefusedHandoffIsKeptForARedirect) {
  Start(Waits(kLongWait), Waits(kLongWait));
  const Request request = Prompt(1);
  SendToNowhere(request, 1);
  EXPECT_EQ(AwaitHandoffs("p", request).at(0).outcome(), pb::Handoff::REFUSED);
  SendDecode(request, 2);
  Redirect(request, 2);
  ExpectServed(request);
  const auto handoffs = AwaitHandoffs("p", request, 2);
  EXPECT_EQ(handoffs.at(1).outcome(), pb::Handoff::COMMITTED);
  EXPECT_GT(handoffs.at(1).bytes(), 0u);
}

// The same request arrives again at the decode worker before its cancelled dispatch has ended
// there.
TEST_F(PrefillRoleTest, ARedirectMayNameAnotherEpochOfTheDecodeWorker) {
  Start(Waits(kLongWait), Waits(kLongWait));
  const Request request = Prompt(1);
  SendToNowhere(request, 1);
  EXPECT_EQ(AwaitHandoffs("p", request).at(0).outcome(), pb::Handoff::REFUSED);
  SendDecode(request, 2);
  Cancel("d", request);
  Request again = request;
  again.epoch = Epoch(2);
  SendDecode(again, 3);
  Redirect(request, 3, 2);
  std::vector<TokenId> all = router_.AwaitEnd("p", 1, 1).Tokens(0);
  const FakeRouter::WorkerReports rest = router_.AwaitEnd("d", 1, 2);
  ASSERT_TRUE(rest.finished.has_value()) << rest.Ending();
  const std::vector<TokenId> more = rest.Tokens(0);
  all.insert(all.end(), more.begin(), more.end());
  EXPECT_EQ(all, d_->model().Expected(request, 0));
  EXPECT_EQ(AwaitFailed("d", request).code(), static_cast<int>(StatusCode::kCancelled));
}

TEST_F(PrefillRoleTest, ARedirectOfNothingFails) {
  Start();
  const Request unknown = Prompt(8);
  Redirect(unknown, 3);
  const pb::Failed failed = AwaitFailed("p", unknown);
  EXPECT_EQ(failed.code(), static_cast<int>(StatusCode::kNotFound));
  EXPECT_THAT(failed.message(), HasSubstr("no refused hand-off"));
}

TEST_F(PrefillRoleTest, ARefusalThatNobodyAnswersFails) {
  Start(Waits(kSoon), Waits(kLongWait));
  const Request request = Prompt(1);
  SendToNowhere(request, 1);
  const auto handoffs = AwaitHandoffs("p", request, 2);
  EXPECT_EQ(handoffs.at(0).outcome(), pb::Handoff::REFUSED);
  EXPECT_EQ(handoffs.at(1).outcome(), pb::Handoff::FAILED);
  EXPECT_THAT(handoffs.at(1).message(), HasSubstr("in time"));
}

TEST_F(PrefillRoleTest, TheRequestsDeadlineEndsTheWaitForARedirect) {
  Start(Waits(kLongWait), Waits(kLongWait));
  const Request request = Prompt(1);
  SendToNowhere(request, 1, 1000);
  const auto handoffs = AwaitHandoffs("p", request, 2);
  EXPECT_EQ(handoffs.at(1).outcome(), pb::Handoff::FAILED);
}

// The prompt is computed, but the decode worker has not accepted the KV yet.
TEST_F(PrefillRoleTest, ADrainWaitsForHandOffs) {
  Start(Waits(kLongWait), Waits(kLongWait));
  const Request request = Prompt(1);
  SendPrefill(request, 1);
  router_.AwaitEnd("p", 1);
  EXPECT_FALSE(DrainsAtOnce(*p_));
  SendDecode(request, 1);
  ExpectServed(request);
  EXPECT_TRUE(p_->worker().Drain(kLongWait));
}

// The sender's thread has not reported yet that the first session has stopped reading the blocks.
TEST_F(PrefillRoleTest, ACancelRightAfterARedirectWaitsForTheFirstSession) {
  Start(Waits(kLongWait), Waits(kSoon));
  for (uint64_t id = 1; id <= 8; ++id) {
    const Request request = Prompt(id);
    SendPrefill(request, id);
    ASSERT_EQ(AwaitHandoffs("p", request).at(0).outcome(),
              pb::Handoff::REFUSED);  // no dispatch arrived at the decode worker
    router_.AwaitEnd("p", id);
    pb::ToWorker message = RedirectOf(request, 100 + id);
    message.mutable_redirects(0)->mutable_peer()->set_worker_id("ghost");
    message.mutable_redirects(0)->mutable_peer()->set_kv_address("127.0.0.1:1");
    message.add_cancels()->set_request_id(request.id.value());
    message.mutable_cancels(0)->set_epoch(request.epoch.value());
    router_.Send("p", message);
    p_->ExpectNothingHeld();
  }
  EXPECT_TRUE(p_->worker().Drain(kLongWait)) << "a hand-off never ended";
}

TEST_F(PrefillRoleTest, CancelWhileTheDecodeWorkerIsDialledLeavesNothing) {
  Start(Waits(kLongWait), Waits(kLongWait));
  const Request request = Prompt(1);
  SendToNowhere(request, 1);
  Cancel("p", request);
  router_.Await("p", 1, 1, [](const FakeRouter::WorkerReports& heard) { return heard.ended(); });
  p_->ExpectNothingHeld();
}

TEST_F(PrefillRoleTest, ALostRouterLeavesNothingBehind) {
  Start(Waits(kLongWait), Waits(kLongWait));
  const Request offered = Prompt(1);
  SendPrefill(offered, 1);
  router_.AwaitEnd("p", 1);
  const Request refused = Prompt(2);
  SendToNowhere(refused, 2);
  AwaitHandoffs("p", refused);
  router_.Drop("p");
  p_->ExpectNothingHeld();
  router_.AwaitJoin("p");
  const Request next = Prompt(3);
  SendDecode(next, 3);
  SendPrefill(next, 3);
  ExpectServed(next);
}

}  // namespace
}  // namespace baton
