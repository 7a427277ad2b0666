#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "tests/unit/model/rank_comparison.h"

// Steps of a pipeline that are under way at the same time, against one rank.
namespace baton {
namespace {

OpenedModel Open(const std::string& family) {
  auto model = OpenModel(std::string(BATON_TEST_DATA) + "/tiny/" + family);
  BATON_CHECK(model.ok(), "{}", Message(model.status()));
  return *std::move(model);
}

// Two prompts in chunks, one after the other; then each decodes in steps of its own.
std::vector<std::vector<Chunk>> DisjointSteps(std::span<const TokenId> a,
                                              std::span<const TokenId> b) {
  std::vector<std::vector<Chunk>> steps;
  for (size_t from = 0; from < 40; from += 10) {
    steps.push_back({{0, a.subspan(from, 10), from == 30 ? WantLogits::kLast : WantLogits::kNone}});
  }
  steps.push_back({{1, b.first(25), WantLogits::kNone}});
  steps.push_back({{1, b.subspan(25, 15), WantLogits::kAll}});
  for (size_t i = 40; i < 50; ++i) {
    steps.push_back({{0, a.subspan(i, 1), WantLogits::kLast}});
    steps.push_back({{1, b.subspan(i, 1), WantLogits::kLast}});
  }
  return steps;
}

class RankedPipeline : public testing::TestWithParam<Degrees> {};

TEST_P(RankedPipeline, StepsUnderWayHaveTheBitsOfOneRank) {
  for (const char* family :
       {"glm4", "llama_gqa", "mistral_window", "qwen3_moe", "granite", "olmo2", "cohere"}) {
    SCOPED_TRACE(family);
    const OpenedModel model = Open(family);
    RankComparison comparison(model.spec, *model.weights, GetParam());
    const auto a = MakePrompt(50, 3, model.spec.vocab);
    const auto b = MakePrompt(50, 90, model.spec.vocab);
    const auto steps = DisjointSteps(a, b);
    const auto got = comparison.group().StepsUnderWay(steps);
    ASSERT_TRUE(got.ok()) << Message(got.status());
    ASSERT_EQ(got->size(), steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_TRUE(SameBits((*got)[i], comparison.alone().Step(steps[i]))) << "step " << i;
    }
    comparison.CompareKv();
  }
}

TEST_P(RankedPipeline, AFailedExchangeFailsTheStepsUnderWay) {
  if (GetParam().tensor > 1) GTEST_SKIP() << "the ranks of other pipelines would wait";
  const OpenedModel model = Open("llama_gqa");
  const auto a = MakePrompt(50, 3, model.spec.vocab);
  const auto b = MakePrompt(50, 90, model.spec.vocab);
  const auto steps = DisjointSteps(a, b);
  const Status lost = MakeStatus(StatusCode::kUnavailable, "rank 1 is gone");
  auto whole = RankedRunner::Create(model.spec, *model.weights, GetParam());
  ASSERT_TRUE(whole.ok() && (*whole)->StepsUnderWay(steps).ok());
  // The last call is the leader's, which receives the logits of the last step.
  const int calls = GetParam().pipeline * (*whole)->pipeline_group(0).calls();
  for (int call = 0; call < calls; ++call) {
    SCOPED_TRACE(call);
    auto group = RankedRunner::Create(model.spec, *model.weights, GetParam());
    ASSERT_TRUE(group.ok());
    (*group)->pipeline_group(0).FailAfter(call, lost);
    const auto result = (*group)->StepsUnderWay(steps);
    EXPECT_EQ(result.status(), lost);
    EXPECT_EQ((*group)->errors().front(), lost);
  }
}

INSTANTIATE_TEST_SUITE_P(Degrees,
                         RankedPipeline,
                         testing::Values(Degrees{1, 2}, Degrees{1, 3}, Degrees{2, 2}),
                         [](const auto& test) {
                           return fmt::format("tp{}_pp{}", test.param.tensor, test.param.pipeline);
                         });

}  // namespace
}  // namespace baton
