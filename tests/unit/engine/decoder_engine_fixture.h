#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/engine/decoder_executor.h"
#include "common/model/open_model.h"
#include "kernels/ops.h"
#include "tests/fakes/engine_harness.h"

namespace baton {

// The device on which these tests run the engine: the CPU, or a GPU in deterministic mode. Each
// program has one.
class EngineDevice {
 public:
  // NotFound on a machine without the device.
  static StatusOr<std::unique_ptr<EngineDevice>> Open();
  virtual ~EngineDevice() = default;
  virtual Ops& ops() = 0;
  // What the device demands of an engine.
  virtual HarnessOptions options() const = 0;
};

// The engine with real decoders: independent of blocks, chunks and batches, the tokens of a request
// are bit for bit those of an engine that runs only this request.
class DecoderEngineTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto device = EngineDevice::Open();
    if (device.status().code() == StatusCode::kNotFound) {
      GTEST_SKIP() << "the engine was NOT tested: " << device.status();
    }
    BATON_CHECK(device.ok(), "{}", Message(device.status()));
    device_ = *std::move(device);
    path_ = std::string(BATON_TEST_DATA) + "/tiny/" + GetParam();
    auto model = OpenModel(path_);
    BATON_CHECK(model.ok(), "{}", Message(model.status()));
    auto decoder = Decoder::Load(model->spec, *model->weights, device_->ops(), {640, 64});
    BATON_CHECK(decoder.ok(), "{}", Message(decoder.status()));
    decoder_ = *std::move(decoder);
    MakeRequests();
  }

  // With the decoder of the fixture unless there is another one.
  std::unique_ptr<DecoderExecutor> Open(const DecoderExecutor::Options& options,
                                        Decoder* other = nullptr) const {
    auto executor = DecoderExecutor::Create(other != nullptr ? *other : *decoder_, options);
    BATON_CHECK(executor.ok(), "{}", Message(executor.status()));
    return *std::move(executor);
  }

  HarnessOptions Options() const {
    HarnessOptions options = device_->options();
    options.kv.blocks = 200;
    options.max_step_tokens = 640;
    options.max_sequences = 16;
    return options;
  }

  // Greedy and seeded requests with every kind of sampling parameter. Some share a prefix.
  void MakeRequests() {
    for (int i = 0; i < 8; ++i) {
      Request request = MakeRequest(i + 1, 9 + 17 * (i % 4), i % 3, 20);
      EditTokens(request, [this](std::vector<TokenId>& tokens) {
        for (TokenId& token : tokens) token %= decoder_->spec().vocab;
      });
      request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
      request.sampling.top_p = i % 3 == 1 ? 0.9f : 1.0f;
      request.sampling.top_k = i == 5 ? 40 : 0;
      request.sampling.repetition_penalty = i % 4 == 3 ? 1.3f : 1.0f;
      request.sampling.presence_penalty = i == 7 ? 0.5f : 0.0f;
      request.sampling.top_logprobs = i % 2 == 0 ? 2 : -1;
      requests_.push_back(request);
    }
    requests_[3].samples = 3;
    for (const Request& request : requests_) {
      EngineHarness alone(Options(), Open({.kv = Options().kv}));
      alone.Submit(request);
      ASSERT_TRUE(alone.RunUntilIdle());
      logs_[request.id] = alone.log(request);
      ASSERT_TRUE(logs_[request.id].times.has_value());
    }
  }

  // Expects all tokens, or the first `most`, of the same request run alone.
  void ExpectSame(const Request& request,
                  const std::vector<TokenOutput>& got,
                  int32_t sample,
                  size_t most = SIZE_MAX) {
    const std::vector<TokenOutput>& want = logs_[request.id].samples[sample];
    ASSERT_EQ(got.size(), std::min(want.size(), most)) << "request " << request.id.value();
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].token.token, want[i].token.token)
          << "request " << request.id.value() << " sample " << sample << " index " << i;
      ASSERT_EQ(got[i].token.logprob, want[i].token.logprob);
    }
  }

  void ExpectAllSame(EngineHarness& harness) {
    for (const Request& request : requests_) {
      for (int32_t i = 0; i < request.samples; ++i) {
        ExpectSame(request, harness.log(request).samples[i], i);
      }
    }
  }

  std::string path_;
  std::unique_ptr<EngineDevice> device_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<Request> requests_;
  std::map<RequestId, RequestLog> logs_;
};

}  // namespace baton
