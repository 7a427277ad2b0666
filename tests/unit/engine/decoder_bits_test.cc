#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/engine/kv_room.h"
#include "tests/unit/engine/decoder_engine_fixture.h"

// What holds on every device.
namespace baton {
namespace {

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

// Requests that end with their prompt, beside others.
TEST_P(DecoderEngineTest, EmbeddingsDependOnTheirPromptAlone) {
  for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
    std::vector<Request> prompts;
    std::vector<std::vector<float>> alone;
    for (size_t i = 0; i < 4; ++i) {
      Request& request = prompts.emplace_back(requests_[i]);
      request.id = RequestId(100 + i);
      request.samples = request.max_tokens = 1;
      request.sampling = {};
      request.sampling.temperature = 0;
      request.pooling = pooling;
      EngineHarness harness(Options(), Open({.kv = Options().kv}));
      harness.Submit(request);
      ASSERT_TRUE(harness.RunUntilIdle());
      alone.push_back(harness.log(request).samples.at(0).at(0).pooled);
      ASSERT_EQ(std::ssize(alone.back()), decoder_->spec().hidden);
    }
    for (const int32_t chunk : {16, 23, 640}) {
      HarnessOptions options = Options();
      options.max_step_tokens = chunk;
      EngineHarness harness(options, Open({.kv = options.kv}));
      for (const Request& request : requests_) harness.Submit(request);
      for (const Request& request : prompts) harness.Submit(request);
      ASSERT_TRUE(harness.RunUntilIdle());
      ExpectAllSame(harness);
      for (size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_EQ(harness.log(prompts[i]).samples.at(0).at(0).pooled, alone[i])
            << "prompt " << i << ", chunks of " << chunk;
      }
    }
  }
}

TEST_P(DecoderEngineTest, PreemptionDoesNotChangeABit) {
  for (const bool prefix_cache : {false, true}) {
    HarnessOptions options = Options();
    options.kv.blocks = 14;
    const auto executor = Open({.kv = options.kv});
    const auto max_tokens = [&] {
      return KvRoom(executor->kv_layout(),
                    options.kv.blocks,
                    options.max_step_tokens,
                    StateBlocks(*executor))
          .max_tokens();
    };
    while (max_tokens() <= 80) ++options.kv.blocks;
    options.prefix_cache = prefix_cache;
    EngineHarness harness(options, Open({.kv = options.kv}));
    for (const Request& request : requests_) harness.Submit(request);
    ASSERT_TRUE(harness.RunUntilIdle());
    EXPECT_GT(harness.engine().Stats().preemptions, 0);
    ExpectAllSame(harness);
  }
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
      const int32_t state_blocks = StateBlocks(*Open({.kv = options.kv}));
      options.kv.blocks += state_blocks;
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
                          state_blocks);
        const auto most = static_cast<size_t>(room.max_tokens()) - request.tokens.size();
        for (int32_t sample = 0; sample < request.samples; ++sample) {
          ExpectSame(request, harness.log(request).samples[sample], sample, most);
        }
      }
    }
  }
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
  const auto decoder = Decoder::Load(model->spec, weights, device_->ops(), {640, 64});
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  HarnessOptions options = Options();
  options.kv.blocks = 40;
  EngineHarness harness(options, Open({.kv = options.kv}, decoder->get()));
  const auto no_poison = [&](std::vector<TokenId>& tokens) {
    std::ranges::replace(tokens, kPoison, kPoison + 1);
  };
  // Nor does the model choose it.
  for (Request& request : requests_) request.sampling.logit_bias = {{kPoison, -100.0f}};
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

}  // namespace
}  // namespace baton
