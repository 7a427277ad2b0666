#include "tests/fault/fault_cluster.h"

#include <algorithm>
#include <future>
#include <thread>

namespace baton {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(2);
constexpr int kLongEvery = 11;  // one of this many requests has a long prompt

bool HasLongPrompt(int number) {
  return number % kLongEvery == kLongEvery - 1;
}

}  // namespace

GenerateCall FaultTest::CallOf(int number) {
  GenerateCall call;
  call.text = HasLongPrompt(number) ? LongPromptOf(number) : PromptOf(number);
  if (number % 2 == 0) {
    call.temperature = 0;
  } else {
    call.temperature = 0.8F;
    call.top_p = 0.95F;
    call.seed = 1000 + static_cast<uint64_t>(number);
  }
  call.max_tokens = kTokens;
  // Every third answer is constrained, and longer than kTokens.
  const bool constrained = number % 3 == 0;
  if (constrained) call.regex = "([a-z]+ [0-9]{2,9}, ){100}";
  call.ignore_eos = !constrained;
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
  auto clients = ConnectedClients(server(), requests());
  std::vector<std::future<GenerateAccount>> running;
  for (int i = 0; i < requests(); ++i) {
    GenerationClient& client = clients[static_cast<size_t>(i)];
    running.push_back(
        std::async(std::launch::async, [&client, i] { return Ask(client, CallOf(i)); }));
  }
  disturb();
  Answers answers;
  for (int i = 0; i < requests(); ++i) {
    const GenerateAccount account = running[static_cast<size_t>(i)].get();
    EXPECT_GE(account.prompt_tokens, HasLongPrompt(i) ? kLongPromptTokens : 1) << "request " << i;
    answers.push_back(account.tokens);
  }
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

void FaultTest::WaitBusy(const std::vector<std::string>& workers) {
  const Time deadline = SteadyClock().Now() + kAnswerLimit;
  const auto busy = [this](const std::string& worker) {
    return Metric(worker, "baton_worker_sequences_running") > 0;
  };
  while (!std::all_of(workers.begin(), workers.end(), busy)) {
    ASSERT_LT(SteadyClock().Now(), deadline)
        << "not all at once have computed a sequence: " << ::testing::PrintToString(workers);
    std::this_thread::sleep_for(kPoll);
  }
}

void FaultTest::SignalBusy(const std::vector<std::string>& workers, int signal) {
  WaitBusy(workers);
  for (const std::string& worker : workers) process(worker).Signal(signal);
}

void FaultTest::ExpectDisturbed() {
  EXPECT_GT(Metric("router", "baton_router_retries_total") +
                Metric("router", "baton_router_handoff_refusals_total"),
            0)
      << "no request was disturbed";
}

}  // namespace baton
