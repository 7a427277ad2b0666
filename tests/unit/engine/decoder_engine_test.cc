#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/engine/decoder_executor.h"
#include "common/engine/kv_room.h"
#include "common/model/open_model.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/fakes/engine_harness.h"
#include "tests/fakes/layer_checker.h"
#include "tests/unit/engine/handoff_driver.h"

namespace baton {
namespace {

// The engine with real decoders: independent of blocks, chunks and batches, the tokens of a request
// are bit for bit those of an engine that runs only this request.
class DecoderEngineTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    path_ = std::string(BATON_TEST_DATA) + "/tiny/" + GetParam();
    auto model = OpenModel(path_);
    BATON_CHECK(model.ok(), "{}", Message(model.status()));
    ops_ = MakeCpuOps(device_, {.threads = 1}).value();
    auto decoder = Decoder::Load(model->spec, *model->weights, *ops_, {640, 64});
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

  static HarnessOptions Options() {
    HarnessOptions options;
    options.kv.blocks = 200;
    options.max_step_tokens = 640;
    options.max_sequences = 16;
    options.kv.dtype = DType::kF32;
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
  CpuDevice device_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<Request> requests_;
  std::map<RequestId, RequestLog> logs_;
};

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

TEST_P(DecoderEngineTest, BatchesAndChunksDoNotChangeABit) {
  for (const int32_t chunk : {16, 17, 23, 64, 640}) {
    HarnessOptions options = Options();
    options.max_step_tokens = chunk;
    EngineHarness harness(options, Open({.kv = options.kv}));
    for (const Request& request : requests_) harness.Submit(request);
    ASSERT_TRUE(harness.RunUntilIdle());
    ExpectAllSame(harness);
  }
  HarnessOptions options = Options();
  options.max_step_tokens = options.max_sequences = 3;
  EngineHarness harness(options, Open({.kv = options.kv}));
  for (const Request& request : requests_) harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  ExpectAllSame(harness);
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

TEST_P(DecoderEngineTest, PreemptionDoesNotChangeABit) {
  for (const bool prefix_cache : {false, true}) {
    HarnessOptions options = Options();
    options.kv.blocks = 14;
    const auto layout = Open({.kv = options.kv})->kv_layout();
    while (KvRoom(layout, options.kv.blocks, options.max_step_tokens, 0).max_tokens() <= 80) {
      ++options.kv.blocks;
    }
    options.prefix_cache = prefix_cache;
    EngineHarness harness(options, Open({.kv = options.kv}));
    for (const Request& request : requests_) harness.Submit(request);
    ASSERT_TRUE(harness.RunUntilIdle());
    EXPECT_GT(harness.engine().Stats().preemptions, 0);
    ExpectAllSame(harness);
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

TEST_P(DecoderEngineTest, ResumeAtAnyIndexDoesNotChangeABit) {
  EngineHarness harness(Options(), Open({.kv = Options().kv}));
  std::vector<std::pair<Request, size_t>> resumed;
  for (const Request& request : requests_) {
    const auto tokens = logs_[request.id].Tokens(request.samples - 1);
    for (size_t done = 1; done < tokens.size(); done += 5) {
      Request rest = request;
      rest.epoch = Epoch(static_cast<uint32_t>(done));
      rest.first_sample = request.samples - 1;
      rest.samples = 1;
      rest.tokens = rest.tokens.Plus(std::span(tokens).first(done));
      harness.Submit(rest);
      resumed.emplace_back(rest, done);
    }
  }
  ASSERT_TRUE(harness.RunUntilIdle());
  for (const auto& [request, done] : resumed) {
    const auto all = logs_[request.id].Tokens(request.first_sample);
    EXPECT_EQ(harness.log(request).Tokens(request.first_sample),
              std::vector(all.begin() + static_cast<int64_t>(done), all.end()));
  }
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

// With every accepted setting, however small, no step fails, no request hangs, and every request
// that fits is served.
TEST_P(DecoderEngineTest, EverySettingThatIsAcceptedServes) {
  const std::vector<std::function<void(HarnessOptions&)>> settings = {
      [](HarnessOptions& o) { o.max_step_tokens = 1; },
      [](HarnessOptions& o) { o.max_sequences = 1; },
      [](HarnessOptions& o) { o.max_step_tokens = o.max_sequences = 1, o.kv.blocks = 8; },
      [](HarnessOptions& o) { o.kv.blocks = 1; },
      [](HarnessOptions& o) { o.kv.blocks = 6, o.prefix_cache = false; },
      [](HarnessOptions& o) { o.max_waiting = 1; },
      [](HarnessOptions& o) { o.itl_target = std::chrono::nanoseconds(1); },
      [](HarnessOptions& o) { o.full_step_tokens = 1; },
      [](HarnessOptions& o) { o.kv.block_tokens = 1024, o.kv.blocks = 2; },
      [](HarnessOptions& o) { o.repeat_output_singly = true, o.max_step_tokens = 1; },
      [](HarnessOptions& o) { o.repeat_output_singly = true, o.max_step_tokens = 2; },
  };
  for (size_t i = 0; i < settings.size(); ++i) {
    for (const AdmissionPolicy admission :
         {AdmissionPolicy::kMaxUtilization, AdmissionPolicy::kGuaranteedNoEvict}) {
      SCOPED_TRACE(fmt::format("settings {}, admission {}", i, static_cast<int>(admission)));
      HarnessOptions options = Options();
      options.admission = admission;
      settings[i](options);
      EngineHarness harness(options, Open({.kv = options.kv}));
      for (const Request& request : requests_) harness.Submit(request);
      ASSERT_TRUE(harness.RunUntilIdle());
      EXPECT_EQ(harness.engine().Stats().failed_steps, 0);
      for (const Request& request : requests_) {
        const RequestLog& log = harness.log(request);
        ASSERT_TRUE(log.ended());
        if (log.failure) {
          const StatusCode code = log.failure->code();
          EXPECT_TRUE(code == StatusCode::kResourceExhausted ||
                      code == StatusCode::kInvalidArgument || code == StatusCode::kOutOfRange)
              << *log.failure;
          continue;
        }
        // An answer ends when it fills the arena; its last token needs no KV.
        const KvRoom room(harness.executor().kv_layout(),
                          harness.executor().kv_blocks(),
                          options.max_step_tokens,
                          /*state_blocks=*/0);
        const auto most = static_cast<size_t>(room.max_tokens()) - request.tokens.size();
        for (int32_t sample = 0; sample < request.samples; ++sample) {
          ExpectSame(request, harness.log(request).samples[sample], sample, most);
        }
      }
    }
  }
}

// The weights of the model, with a NaN embedding for one token.
class NanEmbedding final : public WeightSource {
 public:
  NanEmbedding(const WeightSource& source, TokenId token) : source_(source), token_(token) {}

  StatusOr<HostMatrix> GetMatrix(const WeightId& id,
                                 int64_t rows,
                                 int64_t cols,
                                 const MatrixSlice& slice) const override {
    BATON_ASSIGN_OR_RETURN(HostMatrix matrix, source_.GetMatrix(id, rows, cols, slice));
    if (id.kind != WeightKind::kEmbedding) return matrix;
    const size_t row_bytes = RowBytes(matrix.dtype, static_cast<size_t>(cols));
    bytes_.assign(matrix.data, matrix.data + static_cast<size_t>(rows) * row_bytes);
    // A value with all bits set is NaN in every float type.
    std::fill_n(bytes_.begin() + static_cast<ptrdiff_t>(token_ * row_bytes), row_bytes, kAllBits);
    matrix.data = bytes_.data();
    return matrix;
  }
  StatusOr<std::vector<float>> GetVector(const WeightId& id,
                                         int64_t size,
                                         const std::optional<IndexRange>& range) const override {
    return source_.GetVector(id, size, range);
  }
  void Release(const WeightId&) const override {}
  Hash128 HashPieces(const WeightId&, const PieceShare&) const override { return {}; }
  Hash128 Identity() const override { return {}; }
  std::vector<TensorInfo> Tensors() const override { return {}; }

 private:
  static constexpr std::byte kAllBits{0xff};
  const WeightSource& source_;
  const TokenId token_;
  mutable std::vector<std::byte> bytes_;
};

TEST_P(DecoderEngineTest, StepsAreMeasuredByTheClock) {
  const ManualClock stopped;
  EngineHarness harness(Options(), Open({.kv = Options().kv, .clock = &stopped}));
  harness.Submit(requests_.front());
  ASSERT_TRUE(harness.RunUntilIdle());
  const RankTimes times = harness.executor().rank_times().front();
  EXPECT_GT(times.steps, 0);
  EXPECT_EQ(times.step_seconds, 0);
}

// The head of a model may have more rows than its tokenizer has ids. The tokens of such rows are
// never chosen, however high their logits are, and never listed.
TEST_P(DecoderEngineTest, TokensThatTheTokenizerDoesNotHaveAreNeverSampled) {
  std::map<TokenId, int> chosen;
  for (const auto& [id, log] : logs_) {
    for (const auto& [index, sample] : log.samples) {
      for (const TokenOutput& output : sample) ++chosen[output.token.token];
    }
  }
  // The least id such that some token of the requests above has this id or a higher one.
  const TokenId token_ids = chosen.rbegin()->first;
  EngineHarness harness(Options(), Open({.kv = Options().kv, .token_ids = token_ids}));
  EXPECT_EQ(harness.executor().traits().vocabulary, token_ids);
  for (Request request : requests_) {
    EditTokens(request, [&](std::vector<TokenId>& tokens) {
      for (TokenId& token : tokens) token %= token_ids;
    });
    request.sampling.top_logprobs = 5;
    harness.Submit(request);
  }
  Request outside = requests_[0];
  outside.id = RequestId(1000);
  EditTokens(outside, [&](std::vector<TokenId>& tokens) { tokens[1] = token_ids; });
  harness.Submit(outside);
  Request biased = requests_[0];
  biased.id = RequestId(1001);
  biased.sampling.logit_bias = {{token_ids, 1.0f}};
  harness.Submit(biased);
  ASSERT_TRUE(harness.RunUntilIdle());
  size_t tokens = 0;
  for (const Request& request : requests_) {
    for (const auto& [index, sample] : harness.log(request).samples) {
      for (const TokenOutput& output : sample) {
        ++tokens;
        EXPECT_LT(output.token.token, token_ids);
        for (const TokenLogprob& top : output.token.top) EXPECT_LT(top.token, token_ids);
      }
    }
  }
  EXPECT_GT(tokens, 100u);
  for (const Request& refused : {outside, biased}) {
    ASSERT_TRUE(harness.log(refused).failure.has_value());
    EXPECT_EQ(harness.log(refused).failure->code(), StatusCode::kInvalidArgument);
  }
}

// NaN in one request affects neither the requests beside it nor the requests that use its blocks
// afterwards.
TEST_P(DecoderEngineTest, NanStaysInTheRequestThatHasIt) {
  constexpr TokenId kPoison = 7;
  const auto model = OpenModel(path_);
  ASSERT_TRUE(model.ok()) << model.status();
  const NanEmbedding weights(*model->weights, kPoison);
  const auto decoder = Decoder::Load(model->spec, weights, *ops_, {640, 64});
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  HarnessOptions options = Options();
  options.kv.blocks = 40;
  EngineHarness harness(options, Open({.kv = options.kv}, decoder->get()));
  const auto no_poison = [&](std::vector<TokenId>& tokens) {
    std::ranges::replace(tokens, kPoison, kPoison + 1);
  };
  std::vector<Request> bad;
  for (int round = 0; round < 2; ++round) {
    for (Request request : requests_) {
      EditTokens(request, no_poison);
      request.epoch = Epoch(static_cast<uint32_t>(round));
      harness.Submit(request);
      request.id = RequestId(100 + request.id.value());
      EditTokens(request,
                 [&](std::vector<TokenId>& tokens) { tokens[tokens.size() / 2] = kPoison; });
      harness.Submit(request);
      bad.push_back(request);
    }
    ASSERT_TRUE(harness.RunUntilIdle());
  }
  for (const Request& request : bad) {
    ASSERT_TRUE(harness.log(request).failure.has_value());
    EXPECT_NE(Message(*harness.log(request).failure).find("the model gives no token"),
              std::string_view::npos);
  }
  EXPECT_TRUE(harness.engine().Stats().healthy);
  for (Request request : requests_) {
    EditTokens(request, no_poison);
    EngineHarness alone(Options(), Open({.kv = Options().kv}, decoder->get()));
    alone.Submit(request);
    ASSERT_TRUE(alone.RunUntilIdle());
    for (uint32_t round = 0; round < 2; ++round) {
      Request served = request;
      served.epoch = Epoch(round);
      for (int32_t i = 0; i < request.samples; ++i) {
        EXPECT_EQ(harness.log(served).Tokens(i), alone.log(request).Tokens(i));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         DecoderEngineTest,
                         ::testing::Values("llama_gqa",
                                           "mistral_window",
                                           "qwen2",
                                           "gpt_oss",
                                           "gemma3_text",
                                           "llama4_text",
                                           "deepseek_v3"));

}  // namespace
}  // namespace baton
