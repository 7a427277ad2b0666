#include <signal.h>

#include <future>

#include "tests/e2e/cluster.h"

namespace baton {
namespace {

constexpr int kRequests = 32;
constexpr int kTokens = 48;

enum class Fault { kNone, kKill, kStop };

// What happens to one worker in the middle of 32 running requests. Every request must end with the
// tokens of an undisturbed run, and no living worker may lose a block.
class FaultTest : public ClusterTest {
 protected:
  std::vector<std::vector<int32_t>> RunAll(Fault fault, const std::string& victim) {
    std::vector<std::future<GenerateAccount>> answers;
    for (int i = 0; i < kRequests; ++i) {
      answers.push_back(
          std::async(std::launch::async, [this, i] { return Ask(PromptOf(i), kTokens); }));
    }
    if (fault != Fault::kNone) {
      WaitBusy(victim);
      process(victim).Signal(fault == Fault::kKill ? SIGKILL : SIGSTOP);
    }
    std::vector<std::vector<int32_t>> tokens;
    for (auto& answer : answers) tokens.push_back(answer.get().tokens);
    return tokens;
  }

  // Until the victim has computed something of what runs now.
  void WaitBusy(const std::string& victim) {
    const Time deadline = SteadyClock().Now() + kAnswerLimit;
    while (Metric(victim, "baton_worker_sequences_running") <= 0) {
      ASSERT_LT(SteadyClock().Now(), deadline) << victim << " never had work";
    }
  }

  void Check(Fault fault, const std::string& victim) {
    StartCluster(2, 2);
    const auto undisturbed = RunAll(Fault::kNone, "");
    StartCluster(2, 2);  // with empty prefix caches: prefill workers have work again
    const auto disturbed = RunAll(fault, victim);
    for (size_t i = 0; i < kRequests; ++i) {
      EXPECT_EQ(undisturbed[i].size(), static_cast<size_t>(kTokens)) << "request " << i;
      EXPECT_EQ(disturbed[i], undisturbed[i]) << "request " << i;
    }
    EXPECT_GT(Metric("router", "baton_router_retries_total"), 0) << "nothing was disturbed";
    std::vector<std::string> living;
    for (const char* worker : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
      if (worker != victim) living.push_back(worker);
    }
    ExpectNoLeaks(living);
    // A worker that was only stopped comes back, rejoins, and has lost nothing either.
    if (fault == Fault::kStop) {
      process(victim).Signal(SIGCONT);
      EXPECT_TRUE(cluster().WaitJoined(4, kAnswerLimit).ok());
      ExpectNoLeaks({victim});
    }
  }
};

// A device that hangs: no step of this worker ends in time.
TEST_F(FaultTest, WorkersWhoseStepsDoNotEndLeave) {
  StartCluster(1, 1, {"engine.step_limit_seconds=0.0001"});
  EXPECT_NE(
      RunTool({"generate", "Name a colour.", "--max-tokens", "8", "--timeout-ms", "20000"}).status,
      0);
  EXPECT_EQ(process("prefill-0").WaitExit(kAnswerLimit), 1);
  EXPECT_NE(LogOf("prefill-0").find("a step has not ended for"), std::string::npos);
}

TEST_F(FaultTest, KilledPrefillWorker) {
  Check(Fault::kKill, "prefill-0");
}
TEST_F(FaultTest, KilledDecodeWorker) {
  Check(Fault::kKill, "decode-0");
}
TEST_F(FaultTest, StoppedPrefillWorker) {
  Check(Fault::kStop, "prefill-0");
}
TEST_F(FaultTest, StoppedDecodeWorker) {
  Check(Fault::kStop, "decode-0");
}

}  // namespace
}  // namespace baton
