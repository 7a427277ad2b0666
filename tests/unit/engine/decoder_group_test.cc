#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/engine/decoder_executor.h"
#include "common/model/open_model.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/token_mask.h"
#include "tests/fakes/late_sampling.h"
#include "tests/fakes/thread_collective.h"

// The executors of a group: the leader samples, the followers issue the same step without sampling.
namespace baton {
namespace {

constexpr int32_t kBlocks = 4;

// One rank of a group with its decoder and its executor.
class Rank {
 public:
  // `late`: the ops sample in AwaitStep.
  Rank(const std::string& path, const RankGroups& groups, bool late, StepWatch* watch = nullptr) {
    auto model = OpenModel(path);
    BATON_CHECK(model.ok(), "{}", Message(model.status()));
    auto ops = MakeCpuOps(device_, {.groups = groups});
    BATON_CHECK(ops.ok(), "{}", Message(ops.status()));
    ops_ = *std::move(ops);
    if (late) ops_ = std::make_unique<LateSampling>(std::move(ops_));
    auto decoder = Decoder::Load(model->spec, *model->weights, *ops_, {64, 8});
    BATON_CHECK(decoder.ok(), "{}", Message(decoder.status()));
    decoder_ = *std::move(decoder);
    auto executor = DecoderExecutor::Create(
        *decoder_, {.kv = {.blocks = kBlocks, .dtype = DType::kF32}, .watch = watch});
    BATON_CHECK(executor.ok(), "{}", Message(executor.status()));
    executor_ = *std::move(executor);
  }

  // Computes `prompt` and then `count` tokens. Each token is the input of the next step.
  void Generate(const std::vector<TokenId>& prompt,
                int32_t count,
                std::vector<TokenId>& tokens,
                std::vector<int32_t>& layers) {
    const SamplingParams params = {{.temperature = 0.7f}, {}};
    std::vector<TokenId> input = prompt;
    int32_t context = 0;
    for (int32_t i = 0; i < count; ++i) {
      const auto rows = static_cast<int32_t>(input.size());
      std::vector<int32_t> positions;
      for (int32_t row = 0; row < rows; ++row) positions.push_back(context + row);
      const SequenceRows sequence{0, rows, context, 0};
      const std::vector<int32_t> table = {2, 0, 3};
      const std::vector<int32_t> logit_rows = {rows - 1};
      const bool leads = decoder_->plan().place.leader();
      const SamplingRow row{&params, static_cast<uint64_t>(context + rows), {}, {}, {}};
      std::vector<SampledToken> sampled(leads ? 1 : 0);
      const LayerWatch watch{marks_, [&](int32_t n) { layers.push_back(n); }};
      const Status issued = executor_->Issue({input, positions, {&sequence, 1}, table, logit_rows},
                                             std::span(&row, sampled.size()),
                                             sampled,
                                             leads ? watch : LayerWatch{});
      ASSERT_TRUE(issued.ok()) << issued;
      ASSERT_TRUE(executor_->Await().ok());
      context += rows;
      // Followers learn the token from the leader's plan; here the test gives it to all ranks.
      if (leads) tokens.push_back(sampled[0].token);
      input = {static_cast<TokenId>((7 * i + 3) % 100)};
    }
  }

  Executor& executor() { return *executor_; }

 private:
  CpuDevice device_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<DecoderExecutor> executor_;
  const std::vector<int32_t> marks_ = {1, 2, 3};
};

struct Generated {
  std::vector<TokenId> tokens;
  std::vector<int32_t> layers;  // reported to the leader
};

Generated GenerateWith(int32_t tensor, int32_t pipeline, bool late = false) {
  const std::string path = std::string(BATON_TEST_DATA) + "/tiny/qwen3_moe";
  std::vector<std::unique_ptr<ThreadGroup>> stages;
  std::vector<std::unique_ptr<ThreadGroup>> pipelines;
  for (int i = 0; i < pipeline; ++i) stages.push_back(std::make_unique<ThreadGroup>(tensor));
  for (int i = 0; i < tensor; ++i) pipelines.push_back(std::make_unique<ThreadGroup>(pipeline));
  Generated generated;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int32_t rank = 0; rank < tensor * pipeline; ++rank) {
    const RankPlace place = RankPlace::Of(tensor, pipeline, rank);
    ranks.push_back(std::make_unique<Rank>(
        path,
        RankGroups{stages[static_cast<size_t>(place.stage)]->rank(place.tensor_rank),
                   pipelines[static_cast<size_t>(place.tensor_rank)]->rank(place.stage)},
        late));
    EXPECT_EQ(ranks.back()->executor().traits().kv.layers, 3);
    EXPECT_EQ(ranks.back()->executor().traits().kv.kv_heads, 2);
  }
  std::vector<std::jthread> threads;
  for (const auto& rank : ranks) {
    threads.emplace_back([&generated, &rank] {
      rank->Generate({5, 6, 7, 8, 9, 10, 11}, 12, generated.tokens, generated.layers);
    });
  }
  threads.clear();
  return generated;
}

TEST(DecoderGroup, TheLeaderSamplesTheTokensOfOneRank) {
  const Generated alone = GenerateWith(1, 1);
  ASSERT_EQ(alone.tokens.size(), 12u);
  ASSERT_EQ(alone.layers.size(), 36u);
  for (const auto& [tensor, pipeline] : {std::pair{2, 1}, std::pair{4, 1}}) {
    const Generated group = GenerateWith(tensor, pipeline);
    EXPECT_EQ(group.tokens, alone.tokens);
    EXPECT_EQ(group.layers, alone.layers);
  }
  for (const bool late : {false, true}) {
    EXPECT_EQ(GenerateWith(1, 3, late).tokens, alone.tokens);
    EXPECT_EQ(GenerateWith(2, 2, late).tokens, alone.tokens);
  }
}

// The thread of the engine cannot tell that a step does not end, so the executor's watch must see
// the calls that wait: Issue, or Await where the device samples later.
TEST(DecoderExecutorTest, AStepThatDoesNotEndIsOverdue) {
  for (const bool late : {false, true}) {
    std::atomic<int> overdue = 0;
    std::atomic<bool> may_end = false;
    StepWatch watch(std::chrono::milliseconds(40), [&] {
      ++overdue;
      may_end = true;
    });
    Rank rank(std::string(BATON_TEST_DATA) + "/tiny/llama_gqa", {}, late, &watch);
    TokenMask mask(rank.executor().traits().vocabulary);
    mask.Begin();
    // Lets the step end, so that the test ends, at the latest after five seconds.
    const std::jthread device([&] {
      for (int i = 0; i < 500 && !may_end; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      std::ranges::fill(mask.words(), ~uint32_t{0});
      mask.Finish();
    });
    const std::vector<int32_t> zero = {0};
    const SequenceRows sequence{0, 1, 0, 0};
    const SamplingParams params = {{.temperature = 0}, {}};
    SamplingRow row{&params, 1, {}, {}, {}};
    row.mask = &mask;
    row.waits_for_mask = true;
    SampledToken sampled;
    const Status issued = rank.executor().Issue(
        {zero, zero, {&sequence, 1}, zero, zero}, {&row, 1}, {&sampled, 1}, {});
    ASSERT_TRUE(issued.ok()) << issued;
    ASSERT_TRUE(rank.executor().Await().ok());
    EXPECT_EQ(overdue, 1) << late;
    EXPECT_GE(sampled.token, 0);
  }
}

}  // namespace
}  // namespace baton
