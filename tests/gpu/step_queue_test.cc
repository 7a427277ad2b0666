#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/engine/decoder_executor.h"
#include "common/model/open_model.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device/cuda_device.h"
#include "tests/fakes/engine_harness.h"
#include "tests/fakes/fake_grammar.h"
#include "tests/fakes/forwarding_executor.h"
#include "tests/gpu/test_device.h"

// The engine on a GPU with a second step queued while one runs.
namespace baton {
namespace {

// An executor that may queue steps, and counts the steps that were issued while another one ran.
class CountingExecutor final : public ForwardingExecutor {
 public:
  CountingExecutor(Executor& executor, bool queues)
      : ForwardingExecutor(executor), queues_(queues) {}
  bool queues_steps() const override { return queues_; }
  Status Issue(const StepInput& input,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch& watch) override {
    BATON_RETURN_IF_ERROR(ForwardingExecutor::Issue(input, sampling, out, watch));
    behind_ += under_way_++;
    return OkStatus();
  }
  bool samples_later() const override { return queues_ && ForwardingExecutor::samples_later(); }
  Status Await() override {
    --under_way_;
    return ForwardingExecutor::Await();
  }
  int behind() const { return behind_; }

 private:
  const bool queues_;
  int under_way_ = 0;
  int behind_ = 0;
};

class GpuStepQueue : public testing::Test {
 protected:
  void SetUp() override {
    auto device = cuda::CudaDevice::Open(0);
    if (!device.ok() && device.status().code() == StatusCode::kNotFound) {
      GTEST_SKIP() << "steps in a GPU's queue were NOT tested: " << device.status();
    }
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  void Open(bool deterministic) {
    deterministic_ = deterministic;
    auto ops = MakeCudaOps(*device_,
                           cuda::TestedOptions({.deterministic = deterministic, .graphs = true}));
    BATON_CHECK(ops.ok(), "{}", Message(ops.status()));
    ops_ = *std::move(ops);
    auto model = OpenModel(std::string(BATON_TEST_DATA) + "/tiny/llama_gqa");
    BATON_CHECK(model.ok(), "{}", Message(model.status()));
    auto decoder = Decoder::Load(model->spec, *model->weights, *ops_, {640, 64});
    BATON_CHECK(decoder.ok(), "{}", Message(decoder.status()));
    decoder_ = *std::move(decoder);
  }

  std::vector<Request> Requests(int count) {
    std::vector<Request> requests;
    for (int i = 0; i < count; ++i) {
      Request request = MakeRequest(i + 1, 3 + 7 * (i % 5), i, 10 + 3 * i);
      EditTokens(request, [this](std::vector<TokenId>& tokens) {
        for (TokenId& token : tokens) token %= decoder_->spec().vocab;
      });
      request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
      request.sampling.top_k = i % 4 == 3 ? 20 : 0;
      request.sampling.top_logprobs = i % 3 == 0 ? 2 : -1;
      request.samples = i == 5 ? 3 : 1;
      requests.push_back(request);
    }
    return requests;
  }

  // Returns the tokens of each sample of each request. `behind` gets the number of steps that were
  // issued while another one ran.
  std::vector<std::vector<TokenOutput>> Serve(const std::vector<Request>& requests,
                                              bool queues,
                                              int& behind) {
    HarnessOptions options;
    options.kv.blocks = 200;
    options.max_step_tokens = 640;
    options.max_sequences = 32;
    options.kv.dtype = DType::kBF16;
    options.repeat_output_singly = deterministic_;
    options.grammars = &grammars_;
    const auto executor = DecoderExecutor::Create(*decoder_, {.kv = options.kv});
    BATON_CHECK(executor.ok(), "{}", Message(executor.status()));
    CountingExecutor counting(**executor, queues);
    EngineHarness harness(options, counting);
    for (const Request& request : requests) harness.Submit(request);
    EXPECT_TRUE(harness.RunUntilIdle());
    EXPECT_EQ(harness.engine().Stats().blocks_free, 200);
    behind = counting.behind();
    std::vector<std::vector<TokenOutput>> served;
    for (const Request& request : requests) {
      EXPECT_TRUE(harness.log(request).times.has_value());
      for (const auto& [sample, tokens] : harness.log(request).samples) served.push_back(tokens);
    }
    return served;
  }

  void ExpectSame(const std::vector<Request>& requests, int least_behind) {
    int behind = 0;
    const auto want = Serve(requests, false, behind);
    EXPECT_EQ(behind, 0);
    const auto got = Serve(requests, true, behind);
    EXPECT_GE(behind, least_behind);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i].size(), want[i].size()) << i;
      for (size_t k = 0; k < want[i].size(); ++k) {
        ASSERT_EQ(got[i][k].token.token, want[i][k].token.token) << i << " at " << k;
        ASSERT_EQ(got[i][k].token.logprob, want[i][k].token.logprob) << i << " at " << k;
      }
    }
  }

  FakeGrammarCompiler grammars_;
  bool deterministic_ = false;
  std::unique_ptr<cuda::CudaDevice> device_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Decoder> decoder_;
};

TEST_F(GpuStepQueue, TokensAreThoseOfStepsOneByOne) {
  Open(/*deterministic=*/false);
  ExpectSame(Requests(1), 5);
  ExpectSame(Requests(12), 30);
}

// With stop tokens, a queued step computes rows that are not needed any more. They change the
// batch, which leaves the bits of other rows unchanged only in deterministic mode.
TEST_F(GpuStepQueue, StopTokensToo) {
  Open(/*deterministic=*/true);
  std::vector<Request> requests = Requests(12);
  ExpectSame(requests, 30);
  for (Request& request : requests) {
    for (TokenId token = 0; token < decoder_->spec().vocab; token += 9) {
      request.stop_tokens.push_back(token);
    }
  }
  ExpectSame(requests, 5);
}

// The forward pass of a step is queued before its masks can be computed.
TEST_F(GpuStepQueue, ConstrainedRowsToo) {
  Open(/*deterministic=*/true);
  std::vector<Request> requests = Requests(12);
  for (Request& request : requests) {
    request.stop_tokens = {7};
    if (request.id.value() % 3 != 0) request.grammar = "9";
  }
  ExpectSame(requests, 20);
  std::ranges::for_each(requests, [](Request& request) { request.grammar = "9"; });
  ExpectSame(requests, 20);
}

}  // namespace
}  // namespace baton
