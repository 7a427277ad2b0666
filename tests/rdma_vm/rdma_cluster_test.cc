// A cluster of real processes in the guest, whose prefill workers are on rxe0 and whose decode
// workers are on rxe1. KV may be handed over by verbs only. The guest computes slowly, so a tiny
// model answers most requests. The real model answers few, and each of its workers is killed once.

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

constexpr size_t kAtOnce = 4;
constexpr const char* kWorkers[] = {"prefill-0", "prefill-1", "decode-0", "decode-1"};

class RdmaClusterTest : public ClusterTest {
 protected:
  using Answers = std::vector<GenerateAccount>;

  // The number of requests, their prompts, and the tokens of each answer.
  virtual size_t requests() const = 0;
  virtual std::string PromptOf(size_t number) const = 0;
  virtual int tokens() const = 0;

  GenerateCall CallOf(size_t number) const {
    GenerateCall call;
    call.text = PromptOf(number);
    call.timeout_ms = 300'000;
    call.temperature = number % 2 == 0 ? 0.0F : 0.8F;
    call.seed = 1000 + number;
    call.max_tokens = tokens();
    call.ignore_eos = true;
    return call;
  }
  // Sends all requests, a few at a time, and calls `disturb` once a quarter of them has ended.
  Answers RunAll(const std::function<void()>& disturb) {
    Answers answers(requests());
    std::atomic<size_t> next = 0;
    ended_ = 0;
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < kAtOnce; ++i) {
      threads.emplace_back([&] {
        for (size_t number = next++; number < requests(); number = next++) {
          answers[number] = Ask(CallOf(number));
          ++ended_;
        }
      });
    }
    while (ended_ < requests() / 4) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    disturb();
    threads.clear();
    return answers;
  }
  // The answers of one unified worker.
  Answers Undisturbed() {
    StartCluster(0, 1, {"unified=true"});
    return RunAll([] {});
  }
  void Add(const std::string& worker) {
    const bool is_prefill = worker.starts_with("prefill");
    AddWorker(is_prefill ? "prefill" : "decode",
              worker,
              {"transfer.require_transport=verbs",
               is_prefill ? "transfer.verbs.devices=[rxe0]" : "transfer.verbs.devices=[rxe1]"});
    workers_.push_back(worker);
    const Time limit = SteadyClock().Now() + kAnswerLimit;
    while (LogOf(worker).find("joined router") == std::string::npos) {
      ASSERT_LT(SteadyClock().Now(), limit) << worker << " does not join";
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  void StartOverVerbs() {
    StartCluster(0, 0);
    workers_.clear();
    for (const char* const name : kWorkers) Add(name);
  }
  // Waits until one of the workers has a request, and returns it. When all requests have ended
  // before, returns the first worker.
  std::string AwaitBusy(const std::vector<std::string>& workers) {
    while (ended_ < requests()) {
      for (const std::string& worker : workers) {
        if (Metric(worker, "baton_worker_sequences_running") > 0 ||
            Metric(worker, "baton_worker_sequences_waiting") > 0) {
          ++disturbed_;
          return worker;
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return workers.front();
  }
  // Kills one of the workers, a busy one, while requests run. Returns which.
  std::string KillOneOf(const std::vector<std::string>& candidates, const Answers& expected) {
    std::string victim;
    const Answers answers = RunAll([&] {
      victim = AwaitBusy(candidates);
      process(victim).Signal(SIGKILL);
    });
    for (size_t i = 0; i < requests(); ++i) {
      EXPECT_EQ(expected[i].tokens.size(), static_cast<size_t>(tokens())) << i;
      EXPECT_EQ(answers[i].tokens, expected[i].tokens) << i;
      if (!answers[i].transport.empty()) {
        ++handed_over_;
        EXPECT_EQ(answers[i].transport, "verbs");
      }
    }
    std::erase(workers_, victim);
    for (const std::string& worker : workers_) {
      ExpectNoLeaks({worker});
      EXPECT_EQ(Metric(worker, "baton_kv_quarantined_blocks"), 0) << worker;
    }
    return victim;
  }

  // How many workers had a request when they were killed.
  size_t disturbed() const { return disturbed_; }
  // How many requests were handed over while a worker was killed.
  size_t handed_over() const { return handed_over_; }

 private:
  std::vector<std::string> workers_;  // that run
  std::atomic<size_t> ended_ = 0;     // requests of RunAll
  size_t disturbed_ = 0;
  size_t handed_over_ = 0;
};

class TinyRdmaClusterTest : public RdmaClusterTest {
 protected:
  std::string Model() const override { return model_.path(); }
  size_t requests() const override { return 12; }
  std::string PromptOf(size_t number) const override {
    return fmt::format("Runner {} of the relay team waits for the", number);
  }
  int tokens() const override { return 8; }

  void CheckKilled(const std::string& victim) {
    static Answers expected;
    if (expected.empty()) expected = Undisturbed();
    StartOverVerbs();
    if (HasFailure()) return;
    KillOneOf({victim}, expected);
    EXPECT_GT(handed_over(), requests() / 2);
  }

 private:
  const ByteModel model_ = ByteModel::From(BATON_TEST_DATA "/tiny/llama_gqa");
};

TEST_F(TinyRdmaClusterTest, APrefillWorkerIsKilled) {
  CheckKilled("prefill-0");
}
TEST_F(TinyRdmaClusterTest, ADecodeWorkerIsKilled) {
  CheckKilled("decode-0");
}

class RealRdmaClusterTest : public RdmaClusterTest {
 protected:
  size_t requests() const override { return 2; }
  std::string PromptOf(size_t number) const override {
    return number == 0 ? "The sea is" : "Every summer";
  }
  int tokens() const override { return 3; }
};

TEST_F(RealRdmaClusterTest, EachWorkerIsKilledAndStartsAgain) {
  const Answers expected = Undisturbed();
  StartOverVerbs();
  std::vector<std::string> left(std::begin(kWorkers), std::end(kWorkers));
  while (!left.empty() && !HasFailure()) {
    const std::string victim = KillOneOf(left, expected);
    std::erase(left, victim);
    Add(victim + "-again");
  }
  EXPECT_GT(handed_over(), requests());
  EXPECT_GE(disturbed(), 2u);
}

}  // namespace
}  // namespace baton
