#include <signal.h>

#include <functional>
#include <future>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/byte_model.h"
#include "tests/fault/fault_cluster.h"

namespace baton {
namespace {

// Workers with a tiny model whose layers have different windows, or states, or whose weights are
// quantised, are killed while they generate.
class FamilyFaultTest : public FaultTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static constexpr int kLength = 800;  // so long that workers are killed in the middle of it

  std::string Model() const override { return model_.path(); }

  // The tokens of all requests, which run at once while `disturb` is called on this thread.
  Answers AnswersWith(const std::function<void()>& disturb) {
    constexpr int kFamilyRequests = 12;
    auto clients = ConnectedClients(server(), kFamilyRequests);
    std::vector<std::future<GenerateAccount>> running;
    for (int i = 0; i < kFamilyRequests; ++i) {
      GenerationClient& client = clients[static_cast<size_t>(i)];
      running.push_back(
          std::async(std::launch::async, [&client, i] { return Ask(client, LongCall(i)); }));
    }
    disturb();
    Answers answers;
    for (auto& answer : running) answers.push_back(answer.get().tokens);
    return answers;
  }

 private:
  static GenerateCall LongCall(int number) {
    GenerateCall call;
    call.text = PromptOf(number);
    call.temperature = number % 2 == 0 ? 0.0F : 0.8F;
    call.seed = 1000 + static_cast<uint64_t>(number);
    call.max_tokens = kLength;
    call.ignore_eos = true;
    call.timeout_ms = 240'000;
    return call;
  }

  const ByteModel model_ = ByteModel::From(std::string(BATON_TEST_DATA) + "/tiny/" + GetParam());
};

TEST_P(FamilyFaultTest, AnswersOfAKilledDecodeWorkerContinue) {
  StartCluster(0, 1, {"unified=true"});
  const Answers expected = AnswersWith([] {});
  for (const auto& tokens : expected) ASSERT_EQ(tokens.size(), static_cast<size_t>(kLength));
  StartCluster(1, 2);
  EXPECT_EQ(AnswersWith([&] { SignalBusy({"decode-0"}, SIGKILL); }), expected);
  ExpectDisturbed();
  ExpectNoLeaks({"prefill-0", "decode-1"});
}

INSTANTIATE_TEST_SUITE_P(Families,
                         FamilyFaultTest,
                         ::testing::Values("gemma2",
                                           "gemma3_text",
                                           "gpt_oss",
                                           "llama4_text",
                                           "deepseek_v32",
                                           "qwen3_next",
                                           "falcon_h1",
                                           "llama_gptq_int4_actorder"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace baton
