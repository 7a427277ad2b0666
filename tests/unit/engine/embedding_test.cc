#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/engine/decoder_executor.h"
#include "common/model/open_model.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/fakes/engine_harness.h"
#include "tests/fakes/late_sampling.h"
#include "tests/fakes/thread_collective.h"
#include "tests/support/temporary_folder.h"

// Requests that end with their prompt: their vectors and scores are those of an independent
// implementation, and their bits depend on nothing else.
namespace baton {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

const std::string& Folder() {
  static const auto* const folder =
      new std::string(std::string(BATON_TEST_DATA) + "/tiny/qwen3_embedding");
  return *folder;
}

Json Golden() {
  std::ifstream file(Folder() + "/golden.json");
  return Json::parse(file);
}

const char* NameOf(Pooling pooling) {
  if (pooling == Pooling::kMean) return "mean";
  return pooling == Pooling::kFirst ? "first" : "last";
}

Request PromptOf(uint64_t id, const std::vector<TokenId>& tokens) {
  Request request;
  request.id = RequestId(id);
  request.tokens = tokens;
  request.prompt_length = static_cast<int32_t>(tokens.size());
  request.max_tokens = 1;
  request.sampling.temperature = 0;
  return request;
}

Request EmbeddingOf(uint64_t id, const std::vector<TokenId>& tokens, Pooling pooling) {
  Request request = PromptOf(id, tokens);
  request.pooling = pooling;
  return request;
}

double Cosine(const std::vector<float>& a, const std::vector<double>& b) {
  double product = 0;
  double left = 0;
  double right = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    product += a[i] * b[i];
    left += double{a[i]} * a[i];
    right += b[i] * b[i];
  }
  return product / std::sqrt(left * right);
}

class EmbeddingTest : public ::testing::Test {
 protected:
  EmbeddingTest() : golden_(Golden()) {
    auto model = OpenModel(Folder());
    BATON_CHECK(model.ok(), "{}", Message(model.status()));
    ops_ = MakeCpuOps(device_, {.threads = 1}).value();
    auto decoder = Decoder::Load(model->spec, *model->weights, *ops_, {256, 96});
    BATON_CHECK(decoder.ok(), "{}", Message(decoder.status()));
    decoder_ = *std::move(decoder);
    for (const Json& one : golden_["embeddings"]) {
      prompts_.push_back(one["tokens"].get<std::vector<TokenId>>());
    }
  }

  static HarnessOptions Options() {
    HarnessOptions options;
    options.kv.blocks = 100;
    options.kv.block_tokens = 16;
    options.kv.dtype = DType::kF32;
    options.max_step_tokens = 256;
    options.max_sequences = 16;
    return options;
  }

  std::unique_ptr<EngineHarness> Harness(const HarnessOptions& options) {
    auto executor = DecoderExecutor::Create(*decoder_, {.kv = options.kv});
    BATON_CHECK(executor.ok(), "{}", Message(executor.status()));
    return std::make_unique<EngineHarness>(options, *std::move(executor));
  }

  static std::vector<float> ResultOf(EngineHarness& harness, const Request& request) {
    const RequestLog& log = harness.log(request);
    EXPECT_TRUE(log.times.has_value());
    if (!log.times.has_value() || log.samples.size() != 1) return {};
    const std::vector<TokenOutput>& outputs = log.samples.at(0);
    EXPECT_EQ(outputs.size(), 1u);
    EXPECT_EQ(outputs[0].finish, FinishReason::kLength);
    return outputs[0].pooled;
  }

  std::vector<float> Alone(const std::vector<TokenId>& tokens, Pooling pooling) {
    const auto harness = Harness(Options());
    const Request request = EmbeddingOf(1, tokens, pooling);
    harness->Submit(request);
    EXPECT_TRUE(harness->RunUntilIdle());
    return ResultOf(*harness, request);
  }

  const Json golden_;
  CpuDevice device_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<std::vector<TokenId>> prompts_;
};

// Copies the model, with a final norm whose weight is NaN.
void CopyWithNanNorm(const std::string& to) {
  std::filesystem::copy(Folder(), to, std::filesystem::copy_options::recursive);
  const std::string path = to + "/model.safetensors";
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const Json tensors = Json::parse(bytes.substr(sizeof(header), header));
  const size_t begin =
      sizeof(header) + header + tensors["norm.weight"]["data_offsets"][0].get<size_t>();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (size_t i = 0; i < 64; ++i) std::memcpy(bytes.data() + begin + 4 * i, &nan, sizeof(nan));
  std::ofstream(path, std::ios::binary) << bytes;
}

constexpr Pooling kPoolings[] = {Pooling::kLast, Pooling::kMean, Pooling::kFirst};

TEST_F(EmbeddingTest, VectorsEqualTheReference) {
  for (const Pooling pooling : kPoolings) {
    for (size_t i = 0; i < prompts_.size(); ++i) {
      const auto want = golden_["embeddings"][i][NameOf(pooling)].get<std::vector<double>>();
      const std::vector<float> got = Alone(prompts_[i], pooling);
      ASSERT_EQ(got.size(), want.size());
      for (size_t n = 0; n < want.size(); ++n) {
        EXPECT_NEAR(got[n], want[n], 2e-5) << NameOf(pooling) << " " << i << " number " << n;
      }
      EXPECT_GT(Cosine(got, want), 1 - 1e-9);
    }
  }
}

TEST_F(EmbeddingTest, BatchesAndChunksDoNotChangeABit) {
  for (const Pooling pooling : kPoolings) {
    for (const int32_t chunk : {16, 33, 256}) {
      HarnessOptions options = Options();
      options.max_step_tokens = chunk;
      const auto harness = Harness(options);
      std::vector<Request> requests;
      for (const auto& prompt : prompts_) {
        requests.push_back(EmbeddingOf(requests.size() + 1, prompt, pooling));
        harness->Submit(requests.back());
      }
      ASSERT_TRUE(harness->RunUntilIdle());
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(ResultOf(*harness, requests[i]), Alone(prompts_[i], pooling)) << i;
      }
    }
  }
}

TEST_F(EmbeddingTest, TheStepsOfGenerationsMayHaveThemToo) {
  const auto alone = Harness(Options());
  Request generation = PromptOf(50, prompts_[3]);
  generation.max_tokens = 30;
  alone->Submit(generation);
  ASSERT_TRUE(alone->RunUntilIdle());
  const auto harness = Harness(Options());
  harness->Submit(generation);
  std::vector<Request> requests;
  for (const Pooling pooling : kPoolings) {
    for (const auto& prompt : prompts_) {
      requests.push_back(EmbeddingOf(requests.size() + 1, prompt, pooling));
      harness->Submit(requests.back());
      harness->Step();
    }
  }
  ASSERT_TRUE(harness->RunUntilIdle());
  EXPECT_EQ(harness->log(generation).Tokens(0), alone->log(generation).Tokens(0));
  for (size_t i = 0; i < requests.size(); ++i) {
    const size_t prompt = i % prompts_.size();
    EXPECT_EQ(ResultOf(*harness, requests[i]), Alone(prompts_[prompt], requests[i].pooling)) << i;
  }
}

// Prompts with other first tokens have no prefix in common.
std::vector<TokenId> LongPrompt(int32_t length, TokenId first = 3) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < length; ++i) tokens.push_back(first + i * 7 % 200);
  return tokens;
}

// The decoder has 96 logit rows; 16 of them are for the samples of sequences.
TEST_F(EmbeddingTest, AMeanTakesAllTokensOfAStepInWhichNothingIsSampled) {
  const Request mean = EmbeddingOf(1, LongPrompt(200), Pooling::kMean);
  const auto whole = Harness(Options());
  whole->Submit(mean);
  whole->Step();
  EXPECT_TRUE(whole->log(mean).ended());
  HarnessOptions options = Options();
  options.max_step_tokens = 30;
  const auto divided = Harness(options);
  divided->Submit(mean);
  ASSERT_TRUE(divided->RunUntilIdle());
  EXPECT_EQ(ResultOf(*whole, mean), ResultOf(*divided, mean));
}

TEST_F(EmbeddingTest, AStepHasNoLogitsBesideManyStates) {
  Request generation = PromptOf(2, LongPrompt(20, 4));
  generation.max_tokens = 3;
  Request scored = PromptOf(3, LongPrompt(20, 5));
  scored.prompt_logprobs = 0;
  const Request mean = EmbeddingOf(1, LongPrompt(200), Pooling::kMean);
  const Request first = EmbeddingOf(4, LongPrompt(20, 6), Pooling::kFirst);
  const auto harness = Harness(Options());
  for (const Request& request : {mean, generation, scored, first}) harness->Submit(request);
  harness->Step();
  EXPECT_TRUE(harness->log(mean).ended());
  EXPECT_TRUE(harness->log(first).ended());
  EXPECT_FALSE(harness->log(generation).begun());
  EXPECT_FALSE(harness->log(scored).begun());
  harness->Step();
  EXPECT_TRUE(harness->log(generation).begun());
  EXPECT_TRUE(harness->log(scored).begun());
  // Beside a decode, a mean takes 64 positions of a step, as logprobs do.
  const Request late = EmbeddingOf(5, LongPrompt(124, 7), Pooling::kMean);
  harness->Submit(late);
  harness->Step();
  EXPECT_FALSE(harness->log(late).ended());
  ASSERT_TRUE(harness->RunUntilIdle());
  EXPECT_EQ(ResultOf(*harness, mean), Alone(LongPrompt(200), Pooling::kMean));
  EXPECT_EQ(ResultOf(*harness, late), Alone(LongPrompt(124, 7), Pooling::kMean));
  const auto alone = Harness(Options());
  alone->Submit(generation);
  ASSERT_TRUE(alone->RunUntilIdle());
  EXPECT_EQ(harness->log(generation).Tokens(0), alone->log(generation).Tokens(0));
}

TEST_F(EmbeddingTest, APrefixOfTheCacheDoesNotChangeABit) {
  const std::vector<TokenId>& longest = prompts_[5];
  ASSERT_GT(longest.size(), 64u);
  std::vector<TokenId> other = longest;
  other.back() = prompts_[1][0];
  for (const Pooling pooling : kPoolings) {
    const auto harness = Harness(Options());
    const Request first = EmbeddingOf(1, longest, pooling);
    const Request again = EmbeddingOf(2, longest, pooling);
    const Request similar = EmbeddingOf(3, other, pooling);
    for (const Request& request : {first, again, similar}) {
      harness->Submit(request);
      ASSERT_TRUE(harness->RunUntilIdle());
    }
    EXPECT_EQ(ResultOf(*harness, again), ResultOf(*harness, first));
    EXPECT_EQ(ResultOf(*harness, similar), Alone(other, pooling));
    // A mean needs the states of all tokens, which are computed again, and the other that of the
    // first one.
    const int32_t cached = harness->log(again).samples.at(0)[0].cached_tokens;
    EXPECT_EQ(cached > 0, pooling == Pooling::kLast) << cached;
  }
}

TEST_F(EmbeddingTest, ScoresEqualTheReference) {
  HarnessOptions options = Options();
  for (const int32_t chunk : {16, 256}) {
    options.max_step_tokens = chunk;
    const auto harness = Harness(options);
    std::vector<Request> requests;
    for (const Json& one : golden_["scores"]) {
      Request request = PromptOf(requests.size() + 1, one["tokens"].get<std::vector<TokenId>>());
      request.labels = {258, 259};  // "yes" and "no"
      request.samples = 2;
      request.sampling.top_logprobs = 0;
      requests.push_back(request);
      harness->Submit(request);
    }
    ASSERT_TRUE(harness->RunUntilIdle());
    for (size_t i = 0; i < requests.size(); ++i) {
      const RequestLog& log = harness->log(requests[i]);
      ASSERT_EQ(log.samples.size(), 2u);
      const SampledToken& yes = log.samples.at(0).at(0).token;
      const SampledToken& no = log.samples.at(1).at(0).token;
      EXPECT_EQ(yes.token, 258);
      EXPECT_EQ(no.token, 259);
      const double score = 1 / (1 + std::exp(double{no.logprob} - yes.logprob));
      EXPECT_NEAR(score, golden_["scores"][i]["score"].get<double>(), 1e-5) << i;
    }
  }
}

TEST_F(EmbeddingTest, NumbersThatAreNotFiniteFailTheRequest) {
  const TemporaryFolder folder;
  CopyWithNanNorm(folder.path());
  auto model = OpenModel(folder.path());
  ASSERT_TRUE(model.ok()) << model.status();
  auto decoder = Decoder::Load(model->spec, *model->weights, *ops_, {256, 96});
  if (!decoder.ok()) GTEST_FAIL() << decoder.status();
  auto executor = DecoderExecutor::Create(**decoder, {.kv = Options().kv});
  ASSERT_TRUE(executor.ok());
  EngineHarness harness(Options(), *std::move(executor));
  const Request vector = EmbeddingOf(1, prompts_[2], Pooling::kLast);
  Request labels = PromptOf(2, prompts_[2]);
  labels.labels = {258};
  labels.sampling.top_logprobs = 0;
  harness.Submit(vector);
  harness.Submit(labels);
  ASSERT_TRUE(harness.RunUntilIdle());
  ASSERT_TRUE(harness.log(vector).failure.has_value());
  EXPECT_THAT(harness.log(vector).failure->message(), HasSubstr("not finite"));
  EXPECT_TRUE(harness.log(labels).failure.has_value());
}

TEST_F(EmbeddingTest, RequestsThatCannotEndWithTheirPromptAreRefused) {
  const auto refused = [&](const Request& request, const std::string& why) {
    const auto harness = Harness(Options());
    harness->Submit(request);
    EXPECT_TRUE(harness->RunUntilIdle());
    ASSERT_TRUE(harness->log(request).failure.has_value());
    EXPECT_THAT(harness->log(request).failure->message(), HasSubstr(why));
  };
  const Request good = EmbeddingOf(1, prompts_[2], Pooling::kLast);
  Request request = good;
  request.max_tokens = 2;
  refused(request, "it must have 1 of 1 token");
  request = good;
  request.samples = 2;
  refused(request, "it must have 1 of 1 token");
  request = good;
  request.kind = RequestKind::kPrefill;
  refused(request, "cannot be handed off");
  request = good;
  request.prompt_logprobs = 0;
  refused(request, "prompt_logprobs");
  request = good;
  request.labels = {3};
  refused(request, "one of both");
  request = PromptOf(1, prompts_[2]);
  request.labels = {3, 512};
  request.samples = 2;
  refused(request, "labels");
}

// ---- groups of ranks

// One rank of a group, which issues the steps that the test gives to all ranks.
class Rank {
 public:
  Rank(const RankGroups& groups, bool late) {
    auto model = OpenModel(Folder());
    ops_ = MakeCpuOps(device_, {.groups = groups}).value();
    if (late) ops_ = std::make_unique<LateSampling>(std::move(ops_));
    auto decoder = Decoder::Load(model->spec, *model->weights, *ops_, {64, 8});
    BATON_CHECK(decoder.ok(), "{}", Message(decoder.status()));
    decoder_ = *std::move(decoder);
    executor_ =
        DecoderExecutor::Create(*decoder_, {.kv = {.blocks = 4, .dtype = DType::kF32}}).value();
  }

  // Computes a prompt. With `results` of kBoth, `token` gets a token, too.
  void Compute(const std::vector<TokenId>& prompt,
               RowResults results,
               std::vector<float>& state,
               SampledToken& token) {
    const auto rows = static_cast<int32_t>(prompt.size());
    std::vector<int32_t> positions;
    for (int32_t row = 0; row < rows; ++row) positions.push_back(row);
    const SequenceRows sequence{0, rows, 0, 0};
    const std::vector<int32_t> table = {2, 0, 3};
    const bool leads = decoder_->plan().place.leader();
    const SamplingParams params = {{.temperature = 0}, {}};
    // Where states alone are wanted, those of all rows; `state` gets the last ones.
    std::vector<int32_t> logit_rows;
    for (int32_t row = results == RowResults::kStates ? 0 : rows - 1; row < rows; ++row) {
      logit_rows.push_back(row);
    }
    std::vector<float> others(logit_rows.size() * state.size());
    std::vector<SamplingRow> sampling;
    for (size_t i = 0; leads && i < logit_rows.size(); ++i) {
      SamplingRow& row = sampling.emplace_back(SamplingRow{&params, static_cast<uint64_t>(rows)});
      row.state = i + 1 == logit_rows.size()
                      ? std::span(state)
                      : std::span(others).subspan(i * state.size(), state.size());
    }
    std::vector<SampledToken> tokens(sampling.size());
    const Status issued = executor_->Issue({.tokens = prompt,
                                            .positions = positions,
                                            .sequences = {&sequence, 1},
                                            .block_tables = table,
                                            .logit_rows = logit_rows,
                                            .results = results},
                                           sampling,
                                           tokens,
                                           {});
    ASSERT_TRUE(issued.ok()) << issued;
    ASSERT_TRUE(executor_->Await().ok());
    if (leads) token = tokens.back();
  }

 private:
  CpuDevice device_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<DecoderExecutor> executor_;
};

std::pair<std::vector<float>, TokenId> ComputeWith(int32_t tensor,
                                                   int32_t pipeline,
                                                   RowResults results,
                                                   bool late) {
  std::vector<std::unique_ptr<ThreadGroup>> stages;
  std::vector<std::unique_ptr<ThreadGroup>> pipelines;
  for (int i = 0; i < pipeline; ++i) stages.push_back(std::make_unique<ThreadGroup>(tensor));
  for (int i = 0; i < tensor; ++i) pipelines.push_back(std::make_unique<ThreadGroup>(pipeline));
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int32_t rank = 0; rank < tensor * pipeline; ++rank) {
    const RankPlace place = RankPlace::Of(tensor, pipeline, rank);
    ranks.push_back(std::make_unique<Rank>(
        RankGroups{stages[static_cast<size_t>(place.stage)]->rank(place.tensor_rank),
                   pipelines[static_cast<size_t>(place.tensor_rank)]->rank(place.stage)},
        late));
  }
  std::vector<std::vector<float>> states(ranks.size(), std::vector<float>(64, 0));
  std::vector<SampledToken> tokens(ranks.size());
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < ranks.size(); ++i) {
      threads.emplace_back(
          [&, i] { ranks[i]->Compute(LongPrompt(40), results, states[i], tokens[i]); });
    }
  }
  return {states[0], tokens[0].token};
}

TEST(EmbeddingGroupTest, TheLeaderGetsTheStatesOfOneRank) {
  const auto alone = ComputeWith(1, 1, RowResults::kBoth, false);
  ASSERT_NE(alone.first, std::vector<float>(64, 0));
  for (const auto& [tensor, pipeline] :
       {std::pair{1, 1}, std::pair{2, 1}, std::pair{1, 2}, std::pair{2, 2}}) {
    for (const bool late : {false, true}) {
      if (late && pipeline == 1) continue;
      EXPECT_EQ(ComputeWith(tensor, pipeline, RowResults::kBoth, late), alone);
      EXPECT_EQ(ComputeWith(tensor, pipeline, RowResults::kStates, late).first, alone.first);
    }
  }
}

}  // namespace
}  // namespace baton
