// A cluster of real processes in the guest, whose prefill workers are on rxe0 and whose decode
// workers are on rxe1. KV may be handed over by verbs only. Each worker is killed once. The model
// is tiny and prompts are short, because the guest computes slowly.

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/cluster.h"
#include "tests/fakes/byte_model.h"

namespace baton {
namespace {

constexpr size_t kRequests = 12;
constexpr size_t kAtOnce = 4;
constexpr int kTokens = 8;
constexpr const char* kWorkers[] = {"prefill-0", "prefill-1", "decode-0", "decode-1"};

class RdmaClusterTest : public ClusterTest {
 protected:
  using Answers = std::vector<GenerateAccount>;

  std::string Model() const override { return model_.path(); }

  static GenerateCall CallOf(size_t number) {
    GenerateCall call;
    call.text = fmt::format("Runner {} of the relay team waits for the", number);
    call.temperature = number % 2 == 0 ? 0.0F : 0.8F;
    call.seed = 1000 + number;
    call.max_tokens = kTokens;
    call.ignore_eos = true;
    return call;
  }
  // Sends all requests, a few at a time, and calls `disturb` once a quarter of them has ended.
  Answers RunAll(const std::function<void()>& disturb) {
    Answers answers(kRequests);
    std::atomic<size_t> next = 0;
    std::atomic<size_t> ended = 0;
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < kAtOnce; ++i) {
      threads.emplace_back([&] {
        for (size_t number = next++; number < kRequests; number = next++) {
          answers[number] = Ask(CallOf(number));
          ++ended;
        }
      });
    }
    while (ended < kRequests / 4) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    disturb();
    threads.clear();
    return answers;
  }
  // The answers of one unified worker, computed once.
  const Answers& Undisturbed() {
    static Answers answers;
    if (answers.empty()) {
      StartCluster(0, 1, {"unified=true"});
      answers = RunAll([] {});
    }
    return answers;
  }
  void StartOverVerbs() {
    StartCluster(0, 0);
    for (const std::string name : kWorkers) {
      const bool is_prefill = name.starts_with("prefill");
      AddWorker(is_prefill ? "prefill" : "decode",
                name,
                {"transfer.require_transport=verbs",
                 is_prefill ? "transfer.verbs.devices=[rxe0]" : "transfer.verbs.devices=[rxe1]"});
    }
    ASSERT_TRUE(cluster().WaitJoined(4, kAnswerLimit).ok());
  }
  void CheckKilled(const std::string& victim) {
    const Answers& expected = Undisturbed();
    StartOverVerbs();
    if (HasFailure()) return;
    const Answers answers = RunAll([&] { process(victim).Signal(SIGKILL); });
    size_t handed_over = 0;
    for (size_t i = 0; i < kRequests; ++i) {
      EXPECT_EQ(expected[i].tokens.size(), static_cast<size_t>(kTokens)) << i;
      EXPECT_EQ(answers[i].tokens, expected[i].tokens) << i;
      if (!answers[i].transport.empty()) {
        ++handed_over;
        EXPECT_EQ(answers[i].transport, "verbs");
      }
    }
    EXPECT_GT(handed_over, kRequests / 2);
    for (const std::string worker : kWorkers) {
      if (worker == victim) continue;
      ExpectNoLeaks({worker});
      EXPECT_EQ(Metric(worker, "baton_kv_quarantined_blocks"), 0) << worker;
    }
  }

 private:
  const ByteModel model_ = ByteModel::From(BATON_TEST_DATA "/tiny/llama_gqa");
};

TEST_F(RdmaClusterTest, APrefillWorkerIsKilled) {
  CheckKilled("prefill-0");
}
TEST_F(RdmaClusterTest, TheOtherPrefillWorkerIsKilled) {
  CheckKilled("prefill-1");
}
TEST_F(RdmaClusterTest, ADecodeWorkerIsKilled) {
  CheckKilled("decode-0");
}
TEST_F(RdmaClusterTest, TheOtherDecodeWorkerIsKilled) {
  CheckKilled("decode-1");
}

}  // namespace
}  // namespace baton
