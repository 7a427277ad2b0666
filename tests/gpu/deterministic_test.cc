#include <algorithm>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/engine/decoder_executor.h"
#include "common/model/open_model.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device/cuda_device.h"
#include "tests/fakes/engine_harness.h"
#include "tests/gpu/test_device.h"

// Deterministic mode with the shapes of large models: the tokens of a request, and the bits of
// their log probabilities, do not depend on other requests, on chunks, or on where an answer is
// resumed.
namespace baton {
namespace {

constexpr size_t kLayers = 4;
constexpr int32_t kBlocks = 8000;
constexpr int32_t kMaxRows = 2048;
constexpr int32_t kMaxSequences = 128;

struct Case {
  const char* shape;  // in bench/engine/shapes
  bool fp8_weights;
};

void PrintTo(const Case& which, std::ostream* out) {
  *out << which.shape << (which.fp8_weights ? " fp8" : " bf16");
}

class GpuDeterministic : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    auto device = cuda::CudaDevice::Open(0);
    if (!device.ok() && device.status().code() == StatusCode::kNotFound) {
      GTEST_SKIP() << "deterministic mode was NOT tested: " << device.status();
    }
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    if (GetParam().fp8_weights && !cuda::SupportsFp8(device_->properties())) {
      GTEST_SKIP() << "no FP8 on this GPU: deterministic mode was NOT tested with it";
    }
    auto ops = MakeCudaOps(
        *device_,
        cuda::TestedOptions(
            {.deterministic = true, .fp8_weights = GetParam().fp8_weights, .graphs = true}));
    BATON_CHECK(ops.ok(), "{}", Message(ops.status()));
    ops_ = *std::move(ops);
    auto model =
        OpenModel(std::string(BATON_TEST_DATA) + "/../../bench/engine/shapes/" + GetParam().shape,
                  {.format = LoadFormat::kDummy});
    BATON_CHECK(model.ok(), "{}", Message(model.status()));
    model->spec.layers.resize(kLayers);
    auto decoder = Decoder::Load(model->spec, *model->weights, *ops_, {kMaxRows, kMaxSequences});
    BATON_CHECK(decoder.ok(), "{}", Message(decoder.status()));
    decoder_ = *std::move(decoder);
  }

  // Prompts of 1 to about 1,500 tokens, greedy and sampled.
  static std::vector<Request> Requests(int count) {
    std::vector<Request> requests;
    for (int i = 0; i < count; ++i) {
      const int32_t length = 1 + 97 * i % 1500;
      Request request = MakeRequest(i + 1, length, i, 40 + 5 * (i % 20));
      request.sampling.top_logprobs = 0;
      requests.push_back(request);
    }
    return requests;
  }

  std::vector<std::vector<TokenOutput>> Serve(const std::vector<Request>& requests,
                                              int32_t step_tokens) {
    HarnessOptions options;
    options.kv.blocks = kBlocks;
    options.max_step_tokens = step_tokens;
    options.max_sequences = kMaxSequences;
    options.kv.dtype = DType::kBF16;
    options.repeat_output_singly = true;
    options.prefix_cache = false;
    auto executor = DecoderExecutor::Create(*decoder_, {.kv = options.kv});
    BATON_CHECK(executor.ok(), "{}", Message(executor.status()));
    EngineHarness harness(options, *std::move(executor));
    for (const Request& request : requests) {
      const auto emitted = static_cast<int32_t>(request.tokens.size()) - request.prompt_length;
      harness.listener().ExpectFirstIndex({request.id, request.epoch}, emitted);
      harness.Submit(request);
    }
    EXPECT_TRUE(harness.RunUntilIdle());
    std::vector<std::vector<TokenOutput>> served;
    for (const Request& request : requests) {
      EXPECT_TRUE(harness.log(request).times.has_value());
      served.push_back(harness.log(request).samples[0]);
    }
    return served;
  }

  static void ExpectSame(const std::vector<TokenOutput>& want,
                         const std::vector<TokenOutput>& got,
                         size_t skipped) {
    ASSERT_EQ(got.size() + skipped, want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].token.token, want[skipped + i].token.token) << "at " << skipped + i;
      ASSERT_EQ(got[i].token.logprob, want[skipped + i].token.logprob) << "at " << skipped + i;
    }
  }

  std::unique_ptr<cuda::CudaDevice> device_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Decoder> decoder_;
};

TEST_P(GpuDeterministic, TokensDependOnTheRequestAlone) {
  const std::vector<Request> requests = Requests(64);
  std::vector<std::vector<TokenOutput>> alone;
  for (const Request& request : requests) {
    alone.push_back(Serve({request}, kMaxRows).front());
    ASSERT_EQ(std::cmp_equal(alone.back().size(), request.max_tokens), true);
  }
  for (const int32_t step_tokens : {2048, 500, 131}) {
    const auto together = Serve(requests, step_tokens);
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "request " << i << ", steps of " << step_tokens);
      ExpectSame(alone[i], together[i], 0);
    }
  }
  // As after a preemption or on another worker: some of the output is there already.
  std::vector<Request> resumed = requests;
  std::vector<size_t> emitted;
  for (size_t i = 0; i < requests.size(); ++i) {
    emitted.push_back(1 + 7 * i % (alone[i].size() - 1));
    EditTokens(resumed[i], [&](std::vector<TokenId>& tokens) {
      for (size_t k = 0; k < emitted[i]; ++k) tokens.push_back(alone[i][k].token.token);
    });
  }
  for (const int32_t step_tokens : {2048, 131}) {
    const auto rest = Serve(resumed, step_tokens);
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "request " << i << " resumed, steps of " << step_tokens);
      ExpectSame(alone[i], rest[i], emitted[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes,
                         GpuDeterministic,
                         testing::Values(Case{"llama-3.1-8b", false},
                                         Case{"llama-3.1-8b", true},
                                         Case{"qwen3-30b-a3b", false},
                                         Case{"qwen3-30b-a3b", true}));

}  // namespace
}  // namespace baton
