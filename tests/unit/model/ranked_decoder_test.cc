#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/model/dummy_weights.h"
#include "tests/parity/weight_types.h"
#include "tests/unit/model/model_gguf.h"
#include "tests/unit/model/rank_comparison.h"
#include "tests/unit/model/tiny_families.h"
#include "tests/unit/model/tiny_gguf.h"

// Groups of ranks against one rank: every bit of logits and KV is equal.
namespace baton {
namespace {

using testing::ElementsAre;

OpenedModel Open(const std::string& family) {
  auto model = OpenModel(TinyModelPath(family));
  BATON_CHECK(model.ok(), "{}", Message(model.status()));
  return *std::move(model);
}

std::string NameOf(const Degrees& degrees) {
  return fmt::format("tp{}_pp{}", degrees.tensor, degrees.pipeline);
}

struct Shape {
  std::string family;
  Degrees degrees;

  friend void PrintTo(const Shape& shape, std::ostream* out) {
    *out << shape.family << NameOf(shape.degrees);
  }
};

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (const char* family : {"glm4",
                             "llama_gqa",
                             "llama_mqa_tied",
                             "llama_yarn",
                             "mistral_window",
                             "mixtral",
                             "qwen2",
                             "qwen3_moe"}) {
    for (const Degrees& degrees : {Degrees{2, 1},
                                   Degrees{4, 1},
                                   Degrees{8, 1},
                                   Degrees{1, 2},
                                   Degrees{1, 3},
                                   Degrees{2, 2},
                                   Degrees{4, 2}}) {
      const bool two_layers = std::string(family) == "mixtral";
      if (two_layers && degrees.pipeline == 3) continue;
      shapes.push_back({family, degrees});
    }
  }
  return shapes;
}

bool HasStates(const std::string& family) {
  const auto spec = LoadModelSpec(std::string(BATON_TEST_DATA) + "/tiny/" + family);
  BATON_CHECK(spec.ok(), "{}", Message(spec.status()));
  return spec->state_layers() > 0;
}

// The families with four or more heads, whose KV heads some ranks have copies of.
std::vector<Shape> ShapesOfFewHeads() {
  std::vector<Shape> shapes;
  for (const std::string family : kTinyFamilies) {
    // Seed-OSS has six heads.
    if (family == "seed_oss" || HasStates(family)) continue;
    for (const Degrees& degrees : {Degrees{2, 1}, Degrees{4, 1}, Degrees{1, 3}, Degrees{2, 2}}) {
      shapes.push_back({family, degrees});
    }
  }
  for (const Degrees& degrees : {Degrees{2, 1}, Degrees{6, 1}, Degrees{2, 3}}) {
    shapes.push_back({"seed_oss", degrees});
  }
  // Ranks have no copies of states. The first three of four layers of Qwen3-Next have states.
  for (const char* family :
       {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "mamba2", "jamba", "kimi_linear"}) {
    for (const Degrees& degrees : {Degrees{2, 1}, Degrees{1, 2}, Degrees{1, 4}, Degrees{2, 2}}) {
      shapes.push_back({family, degrees});
    }
  }
  // Only three layers of Nemotron-H mix, and Falcon-H1 has three layers.
  for (const char* family : {"nemotron_h", "falcon_h1"}) {
    for (const Degrees& degrees : {Degrees{2, 1}, Degrees{1, 2}, Degrees{1, 3}, Degrees{2, 2}}) {
      shapes.push_back({family, degrees});
    }
  }
  shapes.push_back({"kimi_linear", {4, 1}});
  return shapes;
}

// Each layout of quantised weights. Parts of columns begin within groups, and have the groups of
// the act-order of GPTQ.
std::vector<Shape> ShapesOfQuantizedWeights() {
  std::vector<Shape> shapes;
  for (const char* folder : {"llama_gptq_int4_actorder",
                             "llama_awq_int4",
                             "llama_ct_w4a16",
                             "llama_ct_w8a8_int8",
                             "llama_ct_nvfp4",
                             "qwen3_moe_gptq_int4",
                             "qwen3_moe_fp8_block",
                             "gpt_oss_mxfp4"}) {
    for (const Degrees& degrees : {Degrees{2, 1}, Degrees{4, 1}, Degrees{2, 2}}) {
      shapes.push_back({folder, degrees});
    }
  }
  return shapes;
}

class RankedFamily : public testing::TestWithParam<Shape> {};

TEST_P(RankedFamily, HasTheBitsOfOneRank) {
  const auto& [family, degrees] = GetParam();
  const std::string folder = family == "llama_yarn" ? "llama3_rope" : family;
  const OpenedModel model = Open(folder);
  auto spec = LoadModelSpec(std::string(BATON_TEST_DATA) + "/tiny/" + family);
  ASSERT_TRUE(spec.ok());
  RankComparison(*spec, *model.weights, degrees).RunMixedBatches(70);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RankedFamily, testing::ValuesIn(Shapes()), [](const auto& test) {
  return test.param.family + "_" + NameOf(test.param.degrees);
});

INSTANTIATE_TEST_SUITE_P(ShapesOfFewHeads,
                         RankedFamily,
                         testing::ValuesIn(ShapesOfFewHeads()),
                         [](const auto& test) {
                           return test.param.family + "_" + NameOf(test.param.degrees);
                         });

INSTANTIATE_TEST_SUITE_P(QuantizedWeights,
                         RankedFamily,
                         testing::ValuesIn(ShapesOfQuantizedWeights()),
                         [](const auto& test) {
                           return test.param.family + "_" + NameOf(test.param.degrees);
                         });

// Files of llama.cpp have the keys and the values of all heads as a tensor each.
TEST(RankedDecoder, LatentsOfGgufFilesHaveTheBitsOfOneRank) {
  for (const char* file : {"gguf/deepseek_v3.gguf", "gguf/kimi_linear.gguf"}) {
    const OpenedModel model = Open(file);
    for (const Degrees& degrees : {Degrees{2, 1}, Degrees{4, 1}, Degrees{1, 3}, Degrees{2, 2}}) {
      SCOPED_TRACE(file + (" " + NameOf(degrees)));
      RankComparison(model.spec, *model.weights, degrees).RunMixedBatches(70);
    }
  }
}

// In files of llama.cpp, neighbouring value heads of Qwen 3.5 have keys of different heads.
TEST(RankedDecoder, TiledHeadsOfGgufFilesHaveTheBitsOfOneRank) {
  const OpenedModel model = Open("gguf/qwen3_5_text.gguf");
  for (const Degrees& degrees : {Degrees{2, 1}, Degrees{1, 4}, Degrees{2, 2}}) {
    SCOPED_TRACE(NameOf(degrees));
    RankComparison(model.spec, *model.weights, degrees).RunMixedBatches(70);
  }
}

// Sizes that no degree divides, all biases and head norms, and random weights, which every rank
// draws for itself.
TEST(RankedDecoder, UnevenPartsAndRandomWeightsHaveTheBitsOfOneRank) {
  for (const char* family : {"llama_gqa", "qwen3_moe", "mixtral"}) {
    SCOPED_TRACE(family);
    ModelSpec spec = Open(family).spec;
    spec.heads = 6;
    spec.kv_heads = 3;
    spec.vocab = 101;
    spec.qk_norm = QkNorm::kHead;
    spec.qkv_bias = spec.o_bias = spec.mlp_bias = true;
    if (spec.moe.experts > 0) spec.moe.experts = 7;
    for (const Degrees& degrees : {Degrees{3, 1}, Degrees{6, 1}, Degrees{3, 2}}) {
      SCOPED_TRACE(NameOf(degrees));
      RankComparison(spec, DummyWeights(4), degrees).RunMixedBatches(40);
    }
  }
}

TEST(RankedDecoder, MoreThanEightExpertsAreDividedInWholeParts) {
  ModelSpec spec = Open("qwen3_moe").spec;
  spec.heads = 6;
  spec.kv_heads = 3;
  for (const int32_t experts : {20, 64}) {
    spec.moe.experts = experts;
    spec.moe.experts_per_token = 6;
    RankComparison(spec, DummyWeights(5), {3, 1}).RunMixedBatches(40);
  }
}

class RankedBlocks : public testing::TestWithParam<DType> {};

// With a quarter of the columns, each rank would cut the blocks of 256 numbers.
TEST_P(RankedBlocks, HaveTheBitsOfOneRank) {
  const DummyWeights vectors(7);
  const auto bytes =
      WriteModel(SmallSpec(), RandomBlocks(GetParam(), 11), VectorsOf(vectors)).Finish();
  const auto spec = SpecOf(bytes);
  const auto weights = WeightsOf(bytes);
  ASSERT_TRUE(spec.ok() && weights.ok());
  for (const Degrees& degrees : {Degrees{2, 1}, Degrees{4, 1}, Degrees{2, 2}}) {
    SCOPED_TRACE(NameOf(degrees));
    RankComparison comparison(*spec, **weights, degrees);
    comparison.RunMixedBatches(40);
    if (degrees.pipeline > 1) continue;
    const auto whole = static_cast<double>(comparison.alone().decoder().weight_bytes());
    for (int32_t rank = 0; rank < degrees.tensor; ++rank) {
      const auto part = static_cast<double>(comparison.group().rank(rank).decoder().weight_bytes());
      const bool copies_kv = degrees.tensor > spec->kv_heads;
      EXPECT_LE(part * degrees.tensor, whole * (copies_kv ? 1.2 : 1.001)) << "rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types,
                         RankedBlocks,
                         testing::ValuesIn(kBlockTypes.begin(), kBlockTypes.end()),
                         [](const auto& test) { return std::string(Name(test.param)); });

// The layout of GPUs: sums over the ranks, whose bits differ from those of one rank.
TEST(RankedDecoder, SumsOfPartialProductsAreCloseToOneRank) {
  for (const char* family : {"glm4",
                             "llama_gqa",
                             "llama_mqa_tied",
                             "qwen2",
                             "qwen3_moe",
                             "granite",
                             "olmo2",
                             "dots1",
                             "qwen2_moe",
                             "gpt_oss",
                             "gemma2",
                             "llama4_text",
                             "cohere",
                             "gpt_neox",
                             "qwen3_next",
                             "falcon_h1",
                             "nemotron_h",
                             "mamba2",
                             "jamba",
                             "kimi_linear",
                             "phi",
                             "llama_awq_int4",
                             "llama_gptq_int4_actorder",
                             "qwen3_moe_fp8_block"}) {
    SCOPED_TRACE(family);
    const OpenedModel model = Open(family);
    ModelSpec spec = model.spec;
    for (const Degrees& degrees : {Degrees{2, 1}, Degrees{4, 1}, Degrees{2, 2}}) {
      if (spec.state_layers() > 0 && degrees.tensor > spec.kv_heads) continue;
      SCOPED_TRACE(NameOf(degrees));
      RankComparison comparison(spec, *model.weights, degrees, {.exchange = ExchangeMode::kReduce});
      const auto prompt = MakePrompt(30, 5, spec.vocab);
      const Chunk chunk{0, prompt, WantLogits::kAll};
      const auto want = comparison.alone().Step(chunk);
      const auto got = comparison.group().Step({&chunk, 1});
      ASSERT_TRUE(got.ok()) << Message(got.status());
      ASSERT_EQ(got->size(), want.size());
      for (size_t row = 0; row < want.size(); ++row) {
        for (size_t i = 0; i < want[row].size(); ++i) {
          ASSERT_NEAR((*got)[row][i], want[row][i], 1e-3) << "row " << row << " token " << i;
        }
      }
    }
  }
}

TEST(RankedDecoder, BiasesAreAddedOnceToSums) {
  ModelSpec spec = Open("llama_gqa").spec;
  spec.o_bias = spec.mlp_bias = true;
  RankComparison comparison(spec, DummyWeights(3), {2, 1}, {.exchange = ExchangeMode::kReduce});
  const auto prompt = MakePrompt(5, 5, spec.vocab);
  const Chunk chunk{0, prompt, WantLogits::kLast};
  const auto want = comparison.alone().Step(chunk).front();
  const auto got = comparison.group().Step({&chunk, 1});
  ASSERT_TRUE(got.ok()) << Message(got.status());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got->front()[i], want[i], 1e-3);
}

// When the leader's hook is called for a layer, all tensor-parallel ranks have written its KV.
TEST(RankedDecoder, ReportsALayerWhenAllRanksHaveWrittenIt) {
  const OpenedModel model = Open("llama_gqa");
  for (const ExchangeMode mode : {ExchangeMode::kGather, ExchangeMode::kReduce}) {
    for (const WantLogits want : {WantLogits::kNone, WantLogits::kLast}) {
      RankComparison comparison(model.spec, *model.weights, {4, 1}, {.exchange = mode});
      const auto prompt = MakePrompt(16, 5, model.spec.vocab);
      const Chunk chunk{0, prompt, want};
      comparison.alone().Step(std::span(&chunk, 1));
      std::vector<int32_t> layers;
      const auto written = [&](int32_t layer) {
        for (int32_t rank = 0; rank < 4; ++rank) {
          const KvView view = comparison.group().rank(rank).kv();
          const auto* v = reinterpret_cast<const float*>(view.Value(0, layer, 0));
          for (int32_t i = 0; i < view.block_tokens * view.head_dim; ++i) {
            EXPECT_NE(v[i], 0) << "layer " << layer << ", rank " << rank;
          }
        }
      };
      const auto got = comparison.group().Step({&chunk, 1}, [&](int32_t layer) {
        layers.push_back(layer);
        written(layer);
      });
      ASSERT_TRUE(got.ok()) << Message(got.status());
      EXPECT_THAT(layers, ElementsAre(0, 1, 2));
    }
  }
}

TEST(RankedDecoder, TheLeaderReportsTheLayersOfItsStage) {
  const OpenedModel model = Open("llama_gqa");
  for (const int32_t tensor : {1, 2}) {
    RankComparison comparison(model.spec, *model.weights, {tensor, 2});
    const auto prompt = MakePrompt(7, 5, model.spec.vocab);
    const Chunk chunk{0, prompt, WantLogits::kNone};
    std::vector<int32_t> layers;
    ASSERT_TRUE(comparison.group().Step({&chunk, 1}, [&](int32_t n) { layers.push_back(n); }).ok());
    std::vector<int32_t> own;
    const KvShard& shard = comparison.group().rank(0).decoder().plan().kv_shard;
    for (int32_t n = 0; n < shard.layer_count; ++n) own.push_back(n);
    EXPECT_LT(shard.layer_count, model.spec.layer_count());
    EXPECT_EQ(layers, own);
  }
}

TEST(RankedDecoder, OnlyTheLeaderHasLogits) {
  const OpenedModel model = Open("qwen2");
  auto group = RankedRunner::Create(model.spec, *model.weights, {2, 2});
  ASSERT_TRUE(group.ok());
  for (int32_t rank = 0; rank < 4; ++rank) {
    const RankPlan& plan = (*group)->rank(rank).decoder().plan();
    EXPECT_EQ(plan.place.leader(), rank == 0);
    EXPECT_EQ((*group)->rank(rank).decoder().fingerprint(),
              (*group)->rank(0).decoder().fingerprint());
  }
}

// A failed exchange fails the step on all ranks; no layer is reported after the failure.
TEST(RankedDecoder, AFailedExchangeFailsTheStepAndNotTheProcess) {
  const OpenedModel model = Open("qwen3_moe");
  const auto prompt = MakePrompt(12, 5, model.spec.vocab);
  const Chunk chunk{0, prompt, WantLogits::kLast};
  const Status lost = MakeStatus(StatusCode::kUnavailable, "rank 1 is gone");
  auto whole = RankedRunner::Create(model.spec, *model.weights, {2, 1});
  ASSERT_TRUE(whole.ok() && (*whole)->Step({&chunk, 1}).ok());
  const int calls = (*whole)->tensor_group(0).calls();
  ASSERT_GT(calls, 10);
  for (int call = 0; call < 2 * calls; ++call) {
    SCOPED_TRACE(fmt::format("call {}", call));
    auto group = RankedRunner::Create(model.spec, *model.weights, {2, 1});
    ASSERT_TRUE(group.ok());
    (*group)->tensor_group(0).FailAfter(call, lost);
    const auto step = (*group)->Step({&chunk, 1});
    EXPECT_EQ(step.status(), lost);
    const auto again = (*group)->Step({&chunk, 1});
    EXPECT_EQ(again.status(), lost);
    for (const Status& error : (*group)->errors()) EXPECT_EQ(error, lost);
  }
}

TEST(RankedDecoder, NoNotificationFollowsAFailedExchange) {
  CpuDevice device;
  ThreadGroup group(2);
  group.FailAfter(0, MakeStatus(StatusCode::kUnavailable, "rank 1 is gone"));
  const auto ops = MakeCpuOps(device, {.groups = {.tensor = group.rank(0)}});
  ASSERT_TRUE(ops.ok());
  int notified = 0;
  (*ops)->NotifyWhenDone([&] { ++notified; });
  EXPECT_EQ(notified, 1);
  (*ops)->exchange()->Barrier();
  (*ops)->NotifyWhenDone([&] { ++notified; });
  EXPECT_EQ(notified, 1);
  EXPECT_EQ((*ops)->IssueStep().code(), StatusCode::kUnavailable);
}

TEST(RankedDecoder, ADegreeThatDoesNotDivideIsRefusedBeforeWeightsAreLoaded) {
  const OpenedModel model = Open("llama_gqa");
  const auto group = RankedRunner::Create(model.spec, *model.weights, {3, 1});
  EXPECT_EQ(group.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(group.status()),
            "tensor_parallel is 3; for a model with 8 heads and 2 KV heads, intermediate size 160 "
            "it must be one of 1, 2, 4, 8");
}

}  // namespace
}  // namespace baton
