// Which requests the router refuses because their first token is expected after their deadline.
#include <chrono>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/retry_after.h"
#include "router/core/router_core.h"

namespace baton::router {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Time kStart{std::chrono::hours(1)};

class AdmissionTest : public testing::Test {
 protected:
  static CoreOptions Options() {
    CoreOptions options;
    options.max_requests = 2;
    return options;
  }

  // Joins a worker that serves alone and needs `prompt_token_ms` for each token of a prompt.
  WorkerSlot Join(const char* id, uint64_t boot, double prompt_token_ms, Time now) {
    WorkerInfo info;
    info.id = WorkerId(id);
    info.boot = BootId(boot);
    info.can_decode = true;
    info.block_tokens = 16;
    info.blocks = 100;
    info.max_sequences = 8;
    info.max_step_tokens = 512;
    info.context_length = 512;
    const WorkerSlot slot = core_.Join(std::move(info), now).value();
    WorkerReport report;
    report.load.emplace();
    report.load->engine.step_ms_base = 1;
    report.load->engine.step_ms_per_prompt_token = prompt_token_ms;
    core_.OnReport(slot, report, now);
    return slot;
  }

  // Submits a prompt of 100 tokens with a deadline of ten seconds.
  void Submit(Time now, uint64_t id = 1) {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = RequestId(id);
    spec->prompt = std::vector<TokenId>(100, static_cast<TokenId>(id));  // shares no prefix
    spec->arrival = now;
    spec->deadline = now + seconds(10);
    core_.Submit(std::move(spec), now);
    TakeActions();
  }
  // The worker answers the request with one token.
  void Answer(WorkerSlot worker, uint64_t id, Time now) {
    WorkerReport report;
    TokenOutput& token = report.tokens.emplace_back();
    token.id = RequestId(id);
    token.epoch = Epoch(1);
    token.finish = FinishReason::kStop;
    report.finished.push_back({RequestId(id), Epoch(1), {}});
    core_.OnReport(worker, report, now);
    TakeActions();
  }
  void TakeActions() {
    CoreActions actions;
    core_.TakeActions(actions);
    for (const auto& [slot, command] : actions.commands) {
      if (std::holds_alternative<DispatchCommand>(command)) dispatched_.push_back(slot);
    }
    for (const auto& [id, event] : actions.events) {
      const auto* outcome = std::get_if<Outcome>(&event);
      if (outcome == nullptr) continue;
      outcomes_.push_back(outcome->status);
      retryable_.push_back(outcome->retryable);
    }
  }

  RouterCore core_{Options()};
  std::vector<WorkerSlot> dispatched_;
  std::vector<Status> outcomes_;
  std::vector<bool> retryable_;  // of outcomes_
};

// Waiting does not help, because an idle worker would not meet the deadline either.
TEST_F(AdmissionTest, APromptThatTakesLongerThanItsDeadlineIsNotWorthARetry) {
  Join("slow", 1, 1000, kStart);
  Submit(kStart);
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_EQ(outcomes_[0].code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(RetryAfterOf(outcomes_[0]).has_value());
  EXPECT_FALSE(retryable_[0]);
  EXPECT_TRUE(dispatched_.empty());
  EXPECT_THAT(std::string(Message(outcomes_[0])),
              AllOf(HasSubstr("100001 ms"), HasSubstr("10000 ms")));
}

TEST_F(AdmissionTest, ARequestThatOnlyTheQueueDelaysTooMuchIsToldWhenTheQueueIsGone) {
  // A prompt takes 6 s.
  const WorkerSlot worker = Join("slow", 1, 60, kStart);
  Submit(kStart, 1);
  ASSERT_EQ(dispatched_, std::vector<WorkerSlot>{worker});
  Submit(kStart, 2);
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_EQ(outcomes_[0].code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(retryable_[0]);
  EXPECT_NEAR(ToSeconds(RetryAfterOf(outcomes_[0]).value()), 6, 0.1);
  EXPECT_THAT(std::string(Message(outcomes_[0])),
              AllOf(HasSubstr("6001 ms to compute the prompt"), HasSubstr("6001 ms in the queue")));
}

// The fast worker has a queue, and the policy chooses the slow one: an idle cluster would serve the
// request in time.
TEST_F(AdmissionTest, AnIdleClusterIsJudgedByItsFastestWorker) {
  Join("fast", 1, 90, kStart);
  Submit(kStart, 1);
  Join("slow", 2, 110, kStart);
  Submit(kStart, 2);
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_EQ(outcomes_[0].code(), StatusCode::kResourceExhausted);
  EXPECT_NEAR(ToSeconds(RetryAfterOf(outcomes_[0]).value()), 2, 0.1);
}

TEST_F(AdmissionTest, AFullRouterTellsWhenARequestWillEnd) {
  const WorkerSlot worker = Join("fast", 1, 1, kStart);
  Submit(kStart, 1);
  Submit(kStart, 2);
  ASSERT_EQ(outcomes_.size(), 0u);
  Submit(kStart, 3);
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_EQ(outcomes_[0].code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(RetryAfterOf(outcomes_[0]).has_value());
  Answer(worker, 1, kStart + seconds(8));
  Submit(kStart + seconds(8), 4);
  Submit(kStart + seconds(8), 5);
  EXPECT_EQ(RetryAfterOf(outcomes_.back()), seconds(4));
}

// "No worker has joined" would hide that all of them were lost.
TEST_F(AdmissionTest, WithoutWorkersTheReasonNamesThoseThatLeft) {
  EXPECT_EQ(Message(core_.Ready()), "no worker has joined this router");
  const WorkerSlot lost = Join("decode-0", 1, 1, kStart);
  const WorkerSlot drained = Join("decode-1", 2, 1, kStart);
  ASSERT_TRUE(core_.Drain(WorkerId("decode-1"), false, kStart).ok());
  core_.Leave(drained, kStart + seconds(1));
  core_.Leave(lost, kStart + seconds(3));
  core_.Tick(kStart + seconds(5));
  EXPECT_EQ(
      Message(core_.Ready()),
      "all workers have left this router: worker decode-0 was lost 2.0 s ago, worker decode-1 "
      "left after its drain 4.0 s ago");
  Join("decode-0", 3, 1, kStart + seconds(6));
  EXPECT_TRUE(core_.Ready().ok());
}

// The request was admitted: a late answer is better than none.
TEST_F(AdmissionTest, ARequestThatLostItsWorkerIsNotRefusedAsTooLate) {
  const WorkerSlot fast = Join("fast", 1, 1, kStart);
  const WorkerSlot slow = Join("slow", 2, 1000, kStart);
  Submit(kStart);
  ASSERT_EQ(dispatched_, std::vector<WorkerSlot>{fast});
  core_.Leave(fast, kStart + seconds(1));
  core_.Tick(kStart + seconds(2));
  TakeActions();
  ASSERT_TRUE(outcomes_.empty()) << outcomes_[0];
  EXPECT_EQ(dispatched_.back(), slow);
}

}  // namespace
}  // namespace baton::router
