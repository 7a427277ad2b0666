#include "tests/fault/fault_cluster.h"

#include <future>
#include <thread>

namespace baton {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(2);
constexpr int kLongEvery = 16;  // one of this many requests has a long prompt
constexpr int kLongSentences = 100;

}  // namespace

GenerateCall FaultTest::CallOf(int number) {
  GenerateCall call;
  call.text = PromptOf(number);
  if (number % kLongEvery == kLongEvery - 1) {
    for (int i = 0; i < kLongSentences; ++i) {
      call.text += fmt::format(" At mark {} runner {} passed the baton on.", i + number, i);
    }
  }
  if (number % 2 == 0) {
    call.temperature = 0;
  } else {
    call.temperature = 0.8F;
    call.top_p = 0.95F;
    call.seed = 1000 + static_cast<uint64_t>(number);
  }
  call.max_tokens = kTokens;
  call.ignore_eos = true;
  call.timeout_ms = 240'000;
  return call;
}

const FaultTest::Answers& FaultTest::Undisturbed() {
  static Answers answers;
  if (answers.empty()) {
    StartCluster(0, 1, {"unified=true"});
    answers = RunAll([] {});
  }
  return answers;
}

FaultTest::Answers FaultTest::RunAll(const std::function<void()>& disturb) {
  std::vector<std::future<GenerateAccount>> running;
  for (int i = 0; i < kRequests; ++i) {
    running.push_back(std::async(std::launch::async, [this, i] { return Ask(CallOf(i)); }));
  }
  disturb();
  Answers answers;
  for (auto& answer : running) answers.push_back(answer.get().tokens);
  return answers;
}

void FaultTest::CheckAnswers(const std::function<void()>& disturb) {
  Undisturbed();
  StartCluster(2, 2);
  ExpectEqual(RunAll(disturb));
}

void FaultTest::ExpectEqual(const Answers& answers) {
  const Answers& expected = Undisturbed();
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].size(), static_cast<size_t>(kTokens)) << "request " << i;
    EXPECT_EQ(answers[i], expected[i]) << "request " << i;
  }
}

void FaultTest::WaitBusy(const std::string& worker) {
  const Time deadline = SteadyClock().Now() + kAnswerLimit;
  while (Metric(worker, "baton_worker_sequences_running") <= 0) {
    ASSERT_LT(SteadyClock().Now(), deadline) << worker << " has not computed any sequence";
    std::this_thread::sleep_for(kPoll);
  }
}

void FaultTest::SignalBusy(const std::string& worker, int signal) {
  WaitBusy(worker);
  process(worker).Signal(signal);
}

}  // namespace baton
