#include <string>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/engine/decoder_executor.h"
#include "common/model/open_model.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/fakes/engine_harness.h"

namespace baton {
namespace {

std::unique_ptr<DecoderExecutor> Open(Decoder& decoder, const HarnessOptions& options) {
  auto executor = DecoderExecutor::Create(decoder, {.kv = options.kv});
  BATON_CHECK(executor.ok(), "{}", Message(executor.status()));
  return *std::move(executor);
}

// A row that verifies drafts computes each token with the bits of a row of its own.
TEST(DecoderDraftsTest, DraftsChangeNoBit) {
  CpuDevice device;
  const auto ops = MakeCpuOps(device, {.threads = 1}).value();
  for (const std::string name : {"llama_gqa",
                                 "mistral_window",
                                 "gemma3_text",
                                 "llama4_text",
                                 "deepseek_v3",
                                 "deepseek_v32",
                                 "qwen3_next",
                                 "nemotron_h",
                                 "falcon_h1",
                                 "mamba2",
                                 "jamba",
                                 "kimi_linear"}) {
    SCOPED_TRACE(name);
    auto model = OpenModel(std::string(BATON_TEST_DATA) + "/tiny/" + name);
    ASSERT_TRUE(model.ok()) << model.status();
    auto decoder = Decoder::Load(model->spec, *model->weights, *ops, {640, 64});
    ASSERT_TRUE(decoder.ok()) << decoder.status();
    Request request = MakeRequest(1, 26, 2, 300);
    request.sampling.frequency_penalty = -1;  // so that the answer repeats itself
    EditTokens(request, [&](std::vector<TokenId>& tokens) {
      for (TokenId& token : tokens) token %= (*decoder)->spec().vocab;
    });
    HarnessOptions options;
    options.kv.blocks = 200;
    options.max_step_tokens = 640;
    options.max_sequences = 16;
    options.kv.dtype = DType::kF32;
    EngineHarness plain(options, Open(**decoder, options));
    options.lookup_drafts = 5;
    EngineHarness drafting(options, Open(**decoder, options));
    for (EngineHarness* harness : {&plain, &drafting}) {
      harness->Submit(request);
      ASSERT_TRUE(harness->RunUntilIdle());
    }
    EXPECT_GT(drafting.engine().Stats().accepted_drafts, 0);
    const std::vector<TokenOutput>& want = plain.log(request).samples[0];
    const std::vector<TokenOutput>& got = drafting.log(request).samples[0];
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].token.token, want[i].token.token) << i;
      ASSERT_EQ(got[i].token.logprob, want[i].token.logprob) << i;
    }
  }
}

}  // namespace
}  // namespace baton
