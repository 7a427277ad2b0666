#include <algorithm>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/cpu/cpu_backend.h"
#include "tests/fakes/forwarding_ops.h"
#include "tests/fakes/layer_checker.h"
#include "tests/unit/engine/decoder_engine_fixture.h"
#include "tests/unit/engine/handoff_driver.h"

namespace baton {
namespace {

class CpuEngineDevice final : public EngineDevice {
 public:
  Ops& ops() override { return *ops_; }
  HarnessOptions options() const override {
    HarnessOptions options;
    options.kv.dtype = DType::kF32;
    return options;
  }

 private:
  CpuDevice device_;
  std::unique_ptr<Ops> ops_ = MakeCpuOps(device_, {.threads = 1}).value();
};

}  // namespace

StatusOr<std::unique_ptr<EngineDevice>> EngineDevice::Open() {
  return std::make_unique<CpuEngineDevice>();
}

namespace {

TEST_P(DecoderEngineTest, GreedyTokensEqualTheReference) {
  std::ifstream file(path_ + "/golden.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  EngineHarness harness(Options(), Open({.kv = Options().kv}));
  std::vector<std::pair<Request, std::vector<TokenId>>> cases;
  for (const auto& prompt : golden["prompts"]) {
    Request request;
    request.id = RequestId(100 + cases.size());
    request.tokens = prompt["prompt"].get<std::vector<TokenId>>();
    request.prompt_length = static_cast<int32_t>(request.tokens.size());
    auto tokens = prompt["tokens"].get<std::vector<TokenId>>();
    // Compares only the tokens before the first one with nearly equal candidates.
    const auto margins = prompt["margins"].get<std::vector<double>>();
    const auto doubt = std::ranges::find_if(margins, [](double margin) { return margin < 2e-3; });
    tokens.resize(doubt - margins.begin());
    if (tokens.empty()) continue;
    request.max_tokens = static_cast<int32_t>(tokens.size());
    request.sampling.temperature = 0;
    harness.Submit(request);
    cases.emplace_back(request, tokens);
  }
  EXPECT_GE(cases.size(), 3u);
  ASSERT_TRUE(harness.RunUntilIdle());
  for (const auto& [request, tokens] : cases) {
    EXPECT_EQ(harness.log(request).Tokens(0), tokens) << request.prompt_length;
  }
}

// The logprobs of a prompt are those that its tokens had as output, also where the prompt is in the
// prefix cache already.
TEST_P(DecoderEngineTest, LogprobsOfAPromptAreThoseOfTheSameTokensAsOutput) {
  EngineHarness harness(Options(), Open({.kv = Options().kv}));
  Request spoken = requests_[0];
  spoken.max_tokens = 150;
  spoken.sampling = {};
  spoken.sampling.temperature = 1;
  spoken.sampling.top_logprobs = 3;
  harness.Submit(spoken);
  ASSERT_TRUE(harness.RunUntilIdle());
  const std::vector<TokenOutput> output = harness.log(spoken).samples[0];
  Request repeated = spoken;
  repeated.id = RequestId(200);
  repeated.max_tokens = 1;
  repeated.prompt_logprobs = 3;
  EditTokens(repeated, [&](std::vector<TokenId>& tokens) {
    for (const TokenOutput& one : output) tokens.push_back(one.token.token);
  });
  repeated.prompt_length = static_cast<int32_t>(repeated.tokens.size());
  harness.Submit(repeated);
  ASSERT_TRUE(harness.RunUntilIdle());
  const std::vector<SampledToken>& prompt = harness.log(repeated).samples[0][0].prompt;
  ASSERT_EQ(std::ssize(prompt), repeated.prompt_length - 1);
  for (size_t i = 0; i < output.size(); ++i) {
    ASSERT_EQ(prompt[spoken.tokens.size() - 1 + i], output[i].token) << i;
  }
}

TEST_P(DecoderEngineTest, HandOffDoesNotChangeABit) {
  for (const int32_t chunk : {3, 16, 640}) {
    HarnessOptions options = Options();
    options.max_step_tokens = chunk;
    EngineHarness prefill(options, Open({.kv = options.kv}));
    EngineHarness decode(Options(), Open({.kv = Options().kv}));
    HandoffDriver driver(prefill, decode);
    for (const Request& request : requests_) driver.Start(request);
    ASSERT_TRUE(driver.RunUntilIdle());
    for (const Request& request : requests_) {
      for (int32_t i = 0; i < request.samples; ++i) {
        std::vector<TokenOutput> got = prefill.log(request).samples[i];
        const std::vector<TokenOutput>& rest = decode.log(request).samples[i];
        got.insert(got.end(), rest.begin(), rest.end());
        ExpectSame(request, got, i);
      }
    }
  }
}

TEST_P(DecoderEngineTest, LayersAreToldWhenTheyAreFinal) {
  HarnessOptions options = Options();
  options.kv.blocks = 40;
  options.max_step_tokens = 40;
  const auto executor = Open({.kv = options.kv});
  LayerChecker checker(*executor);
  EngineHarness harness(options, checker);
  harness.Submit(requests_[2]);
  harness.Submit(requests_[3]);
  ASSERT_TRUE(harness.RunUntilIdle());
}

TEST_P(DecoderEngineTest, BlocksThatTheBackendCannotTakeAreRefusedAtStart) {
  KvOptions options = Options().kv;
  for (const int32_t block_tokens : {0, 1, 8, 24}) {
    options.block_tokens = block_tokens;
    EXPECT_EQ(Message(DecoderExecutor::Create(*decoder_, {.kv = options}).status()),
              fmt::format("engine: block_tokens is {}; on cpu it must be a multiple of 16",
                          block_tokens));
  }
  options.block_tokens = 32;
  EXPECT_TRUE(DecoderExecutor::Create(*decoder_, {.kv = options}).ok());
}

// Ops with steps that run before the engine serves, as on a GPU.
class OpsToWarmUp final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  WarmUpSizes SizesToWarmUp(int32_t, int32_t) const override { return {{1, 16, 40}, {1, 3, 12}}; }
};

TEST_P(DecoderEngineTest, TheWarmUpRunsStepsOfTheModel) {
  CpuDevice device;
  OpsToWarmUp ops(MakeCpuOps(device, {.threads = 1}).value());
  const auto model = OpenModel(path_);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto decoder = Decoder::Load(model->spec, *model->weights, ops, {640, 64});
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  EngineHarness harness(Options(), Open({.kv = Options().kv}, decoder->get()));
  for (const Request& request : requests_) harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  ExpectAllSame(harness);
}

TEST_P(DecoderEngineTest, StepsAreMeasuredByTheClock) {
  const ManualClock stopped;
  EngineHarness harness(Options(), Open({.kv = Options().kv, .clock = &stopped}));
  harness.Submit(requests_.front());
  ASSERT_TRUE(harness.RunUntilIdle());
  const RankTimes times = harness.executor().rank_times().front();
  EXPECT_GT(times.steps, 0);
  EXPECT_EQ(times.step_seconds, 0);
}

INSTANTIATE_TEST_SUITE_P(Models,
                         DecoderEngineTest,
                         ::testing::Values("llama_gqa",
                                           "mistral_window",
                                           "qwen2",
                                           "gpt_oss",
                                           "gemma3_text",
                                           "llama4_text",
                                           "qwen3_next",
                                           "jamba",
                                           "falcon_h1",
                                           "deepseek_v3",
                                           "llama_gptq_int4_actorder"));

}  // namespace
}  // namespace baton
