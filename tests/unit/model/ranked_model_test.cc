#include <string>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "tests/unit/model/golden.h"
#include "tests/unit/model/rank_comparison.h"

// Groups of ranks of the real model against one rank.
namespace baton {
namespace {

class RankedModel : public testing::TestWithParam<Degrees> {};

TEST_P(RankedModel, HasTheBitsOfOneRank) {
  const auto model = OpenModel(BATON_TEST_MODEL);
  ASSERT_TRUE(model.ok()) << "These tests need SmolLM2-135M-Instruct.Q4_1.gguf: `./dev test` "
                             "fetches it, or configure with -DBATON_TEST_MODEL=<path>. "
                          << Message(model.status());
  const Degrees degrees = GetParam();
  RankComparison comparison(model->spec,
                            *model->weights,
                            degrees,
                            {.kv_dtype = DType::kF16, .kv_blocks = 32, .limits = {128, 128}});
  comparison.RunMixedBatches(90);
  // The embedding, which is also the head, is on the first and on the last stage.
  const auto whole = static_cast<double>(comparison.alone().decoder().weight_bytes());
  for (int32_t rank = 0; rank < degrees.ranks() && degrees.pipeline == 1; ++rank) {
    const auto part = static_cast<double>(comparison.group().rank(rank).decoder().weight_bytes());
    EXPECT_LE(part, 1.03 * whole / degrees.tensor) << "rank " << rank;
  }
}

TEST_P(RankedModel, GreedyTokensEqualTheReference) {
  const auto model = OpenModel(BATON_TEST_MODEL);
  ASSERT_TRUE(model.ok()) << Message(model.status());
  const auto prompts =
      ReadGoldenPrompts(std::string(BATON_TEST_DATA) + "/golden/smollm2/greedy.json");
  ASSERT_TRUE(prompts.ok()) << Message(prompts.status());
  const GoldenPrompt& golden = prompts->front();
  auto group = RankedRunner::Create(
      model->spec, *model->weights, GetParam(), {.kv_blocks = 64, .limits = {640, 16}});
  ASSERT_TRUE(group.ok()) << Message(group.status());
  Chunk chunk{0, golden.prompt};
  for (size_t i = 0; i < std::min<size_t>(8, golden.tokens.size()); ++i) {
    const auto logits = (*group)->Step({&chunk, 1});
    ASSERT_TRUE(logits.ok()) << Message(logits.status());
    if (golden.margins[i] > 0.002) {
      EXPECT_EQ(ArgMax(logits->front()), golden.tokens[i]) << "token " << i;
    }
    chunk.tokens = std::span(&golden.tokens[i], 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes,
                         RankedModel,
                         testing::Values(Degrees{3, 1}, Degrees{1, 2}, Degrees{3, 2}),
                         [](const auto& test) {
                           return fmt::format("tp{}_pp{}", test.param.tensor, test.param.pipeline);
                         });

}  // namespace
}  // namespace baton
