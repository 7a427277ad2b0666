#include "common/model/rank_plan.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/expert_parts.h"

namespace baton {
namespace {

using testing::ElementsAre;

// The shape of SmolLM2-135M.
ModelSpec Smol() {
  ModelSpec spec;
  spec.hidden = 576;
  spec.heads = 9;
  spec.kv_heads = 3;
  spec.head_dim = 64;
  spec.intermediate = 1536;
  spec.vocab = 49152;
  spec.tied_head = true;
  spec.layers.resize(30);
  return spec;
}

ModelSpec Mixture(int32_t experts) {
  ModelSpec spec = Smol();
  spec.heads = 16;
  spec.kv_heads = 4;
  spec.intermediate = 0;
  spec.moe = {.experts = experts, .experts_per_token = 2, .intermediate = 64};
  for (LayerSpec& layer : spec.layers) layer.moe = true;
  return spec;
}

RankPlan Plan(const ModelSpec& spec,
              int32_t tensor,
              int32_t pipeline,
              int32_t rank,
              ExchangeMode mode = ExchangeMode::kGather) {
  return *MakeRankPlan(spec, RankPlace::Of(tensor, pipeline, rank), mode);
}

std::string Error(const ModelSpec& spec,
                  int32_t tensor,
                  int32_t pipeline,
                  ExchangeMode mode = ExchangeMode::kGather) {
  const auto plan = MakeRankPlan(spec, RankPlace::Of(tensor, pipeline, 0), mode);
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  return std::string(Message(plan.status()));
}

TEST(RankPlan, OfOneRankHasTheWholeModel) {
  const RankPlan plan = Plan(Smol(), 1, 1, 0);
  EXPECT_EQ(plan.layers, (IndexRange{0, 30}));
  EXPECT_EQ(plan.heads, (HeadShape{9, 3, 64}));
  EXPECT_EQ(plan.kv_shard, (KvShard{0, 30, 0, 3}));
  EXPECT_FALSE(plan.slice.heads || plan.slice.vocab || plan.slice.hidden);
  EXPECT_TRUE(plan.ends.hidden.empty() && plan.expert_ends.empty());
  EXPECT_TRUE(plan.first_stage() && plan.last_stage() && plan.place.leader());
}

TEST(RankPlan, ByGatherEveryMatrixIsCutByRows) {
  const RankPlan plan = Plan(Smol(), 3, 1, 1);
  EXPECT_EQ(plan.heads, (HeadShape{3, 1, 64}));
  EXPECT_EQ(plan.slice.heads, (IndexRange{3, 6}));
  EXPECT_EQ(plan.slice.kv_heads, (IndexRange{1, 2}));
  EXPECT_EQ(plan.slice.hidden, (IndexRange{192, 384}));
  EXPECT_EQ(plan.slice.intermediate, (IndexRange{512, 1024}));
  EXPECT_EQ(plan.slice.vocab, (IndexRange{16384, 32768}));
  EXPECT_THAT(plan.ends.attention, ElementsAre(192, 384, 576));
  EXPECT_THAT(plan.ends.hidden, ElementsAre(192, 384, 576));
  EXPECT_THAT(plan.ends.feed_forward, ElementsAre(512, 1024, 1536));
  EXPECT_EQ(plan.kv_shard, (KvShard{0, 30, 1, 1}));
}

TEST(RankPlan, ByReduceOnlyTheVocabularyIsGathered) {
  const RankPlan plan = Plan(Smol(), 3, 1, 2, ExchangeMode::kReduce);
  EXPECT_FALSE(plan.slice.hidden);
  EXPECT_EQ(plan.slice.intermediate, (IndexRange{1024, 1536}));
  EXPECT_TRUE(plan.ends.attention.empty() && plan.ends.hidden.empty());
  EXPECT_TRUE(plan.ends.feed_forward.empty());
  EXPECT_THAT(plan.ends.vocab, ElementsAre(16384, 32768, 49152));
}

TEST(RankPlan, RanksShareAKvHead) {
  for (int32_t rank = 0; rank < 9; ++rank) {
    const RankPlan plan = Plan(Smol(), 9, 1, rank);
    EXPECT_EQ(plan.slice.heads, (IndexRange{rank, rank + 1}));
    EXPECT_EQ(plan.kv_shard, (KvShard{0, 30, rank / 3, 1}));
    EXPECT_TRUE(plan.slice.Validate(Smol()).ok());
  }
}

TEST(RankPlan, CutsAtPanelsOfSixteenRowsWhileThereAreEnough) {
  ModelSpec spec = Smol();
  spec.intermediate = 160;
  spec.vocab = 50;
  const RankPlan plan = Plan(spec, 9, 1, 0);
  EXPECT_THAT(plan.ends.feed_forward, ElementsAre(16, 32, 48, 64, 80, 96, 112, 128, 160));
  EXPECT_THAT(plan.ends.vocab, ElementsAre(4, 8, 16, 20, 24, 32, 36, 40, 50));
}

TEST(RankPlan, RefusesDegreesThatDoNotDivideAndNamesThoseThatDo) {
  EXPECT_EQ(Error(Smol(), 2, 1),
            "tensor_parallel is 2; for a model with 9 heads and 3 KV heads, intermediate size 1536 "
            "it must be one of 1, 3, 9");
  EXPECT_EQ(Error(Mixture(6), 8, 1),
            "tensor_parallel is 8; for a model with 16 heads and 4 KV heads, 6 experts it must be "
            "one of 1, 2, 4");
  EXPECT_EQ(Error(Mixture(128), 16, 1),
            "tensor_parallel is 16; for a model with 16 heads and 4 KV heads, 128 experts it must "
            "be one of 1, 2, 4, 8");
  ModelSpec odd = Smol();
  odd.intermediate = 1540;
  EXPECT_TRUE(MakeRankPlan(odd, RankPlace::Of(3, 1, 0), ExchangeMode::kGather).ok());
  EXPECT_EQ(Error(odd, 3, 1, ExchangeMode::kReduce),
            "tensor_parallel is 3; for a model with 9 heads and 3 KV heads, intermediate size 1540 "
            "it must be one of 1");
  EXPECT_EQ(Error(Smol(), 1, 31),
            "pipeline_parallel is 31; the model has 30 layers, so it must be between 1 and 30");
}

TEST(RankPlan, RefusesDegreesBelowOne) {
  EXPECT_EQ(MakeRankPlan(Smol(), {.tensor_parallel = 0}, ExchangeMode::kGather).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeRankPlan(Smol(), {.pipeline_parallel = 0}, ExchangeMode::kGather).status().code(),
            StatusCode::kInvalidArgument);
}

// Every rank of every shape: the slices of a stage cover the model once, and the stages all layers.
TEST(RankPlan, TheRanksHaveEveryLayerAndRowOnce) {
  const ModelSpec spec = Smol();
  for (const int32_t tensor : {1, 3, 9}) {
    for (const int32_t pipeline : {1, 2, 4, 30}) {
      int64_t next_layer = 0;
      for (int32_t stage = 0; stage < pipeline; ++stage) {
        int64_t next_row = 0;
        for (int32_t rank = 0; rank < tensor; ++rank) {
          const RankPlan plan = Plan(spec, tensor, pipeline, stage * tensor + rank);
          EXPECT_EQ(plan.layers.begin, next_layer);
          EXPECT_TRUE(plan.slice.Validate(spec).ok());
          const IndexRange vocab = plan.slice.vocab.value_or(IndexRange{0, spec.vocab});
          EXPECT_EQ(vocab.begin, next_row);
          next_row = vocab.end;
        }
        EXPECT_EQ(next_row, spec.vocab);
        next_layer = Plan(spec, tensor, pipeline, stage * tensor).layers.end;
      }
      EXPECT_EQ(next_layer, 30);
    }
  }
}

TEST(RankPlan, ARankHoldsWholePartsOfTheExperts) {
  EXPECT_THAT(Plan(Mixture(8), 4, 1, 1).expert_ends, ElementsAre(2, 4, 6, 8));
  EXPECT_EQ(Plan(Mixture(8), 4, 1, 1).slice.experts, (IndexRange{2, 4}));
  ModelSpec three = Mixture(8);
  three.heads = three.kv_heads = 9;
  EXPECT_THAT(Plan(three, 3, 1, 0).expert_ends, ElementsAre(2, 5, 8));
  for (const int32_t experts : {1, 3, 8, 10, 60, 128}) {
    EXPECT_EQ(FirstOfPart(experts, 0), 0);
    EXPECT_EQ(FirstOfPart(experts, ExpertParts(experts)), experts);
    for (int32_t part = 0; part < ExpertParts(experts); ++part) {
      EXPECT_LT(FirstOfPart(experts, part), FirstOfPart(experts, part + 1));
      EXPECT_EQ(PartsBefore(experts, FirstOfPart(experts, part)), part);
      for (int32_t e = FirstOfPart(experts, part); e < FirstOfPart(experts, part + 1); ++e) {
        EXPECT_EQ(PartOfExpert(experts, e), part);
      }
    }
  }
}

TEST(DivideLayers, MakesTheSlowestStageAsFastAsPossible) {
  const LayerCosts equal{.layers = std::vector<double>(8, 1.0)};
  EXPECT_THAT(DivideLayers(equal, 1), ElementsAre(8));
  EXPECT_THAT(DivideLayers(equal, 4), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(DivideLayers(equal, 8), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  const LayerCosts head{.layers = std::vector<double>(8, 1.0), .last = 4};
  EXPECT_THAT(DivideLayers(head, 2), ElementsAre(6, 8));
  EXPECT_THAT(DivideLayers(head, 3), ElementsAre(3, 7, 8));
  const LayerCosts both{.layers = std::vector<double>(6, 1.0), .first = 2, .last = 2};
  EXPECT_THAT(DivideLayers(both, 2), ElementsAre(3, 6));
  const LayerCosts mixed{.layers = {9, 1, 1, 1}};
  EXPECT_THAT(DivideLayers(mixed, 2), ElementsAre(1, 4));
}

// The head of SmolLM2 has the bytes of eight layers.
TEST(DivideLayers, CountsTheOutputHead) {
  const LayerCosts costs = DecodeCosts(Smol());
  EXPECT_NEAR(costs.last / costs.layers[0], 8.0, 0.1);
  EXPECT_THAT(DivideLayers(costs, 2), ElementsAre(19, 30));
  EXPECT_THAT(DivideLayers(costs, 3), ElementsAre(12, 25, 30));
}

// Only the last token of a prompt passes the head.
TEST(MakeRankPlan, StagesAreBalancedForDecodesOrForPrompts) {
  const auto layers = [](StageBalance balance) {
    const RankPlace first = RankPlace::Of(1, 2, 0);
    return MakeRankPlan(Smol(), first, ExchangeMode::kGather, balance)->layers.size();
  };
  EXPECT_EQ(layers(StageBalance::kDecodes), 19);
  EXPECT_EQ(layers(StageBalance::kPrompts), 15);
}

}  // namespace
}  // namespace baton
