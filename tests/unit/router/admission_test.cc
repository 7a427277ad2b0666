// Which requests the router refuses because their first token is expected after their deadline.
#include <chrono>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "router/router_core.h"

namespace baton::router {
namespace {

using std::chrono::seconds;

constexpr Time kStart{std::chrono::hours(1)};

class AdmissionTest : public testing::Test {
 protected:
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
  void Submit(Time now) {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = RequestId(1);
    spec->prompt = std::vector<TokenId>(100, 1);
    spec->arrival = now;
    spec->deadline = now + seconds(10);
    core_.Submit(std::move(spec), now);
    TakeActions();
  }
  void TakeActions() {
    CoreActions actions;
    core_.TakeActions(actions);
    for (const auto& [slot, command] : actions.commands) {
      if (std::holds_alternative<DispatchCommand>(command)) dispatched_.push_back(slot);
    }
    for (const auto& [id, event] : actions.events) {
      if (const auto* outcome = std::get_if<Outcome>(&event)) outcomes_.push_back(outcome->status);
    }
  }

  RouterCore core_{CoreOptions{}};
  std::vector<WorkerSlot> dispatched_;
  std::vector<Status> outcomes_;
};

TEST_F(AdmissionTest, ARequestWhoseFirstTokenWouldComeTooLateIsRefused) {
  Join("slow", 1, 1000, kStart);
  Submit(kStart);
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_EQ(outcomes_[0].code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(dispatched_.empty());
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
