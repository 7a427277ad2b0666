#include "common/model/gguf_config.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/describe_model.h"
#include "common/model/dummy_weights.h"
#include "common/model/weight_names.h"
#include "tests/unit/model/model_gguf.h"
#include "tests/unit/model/step_runner.h"

// Specs of GGUF files, and what nothing reads of them.
namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelSpec Written() {
  ModelSpec spec;
  spec.hidden = 64;
  spec.heads = 8;
  spec.kv_heads = 2;
  spec.head_dim = 8;
  spec.intermediate = 96;
  spec.vocab = 40;
  spec.context_length = 1024;
  spec.rope.rotary_dim = 8;
  spec.layers.resize(2);
  spec.eos = {2};
  return spec;
}

GgufWriter Gguf(const ModelSpec& spec) {
  const DummyWeights weights(1);
  return WriteModel(spec, FloatsOf(weights, spec), VectorsOf(weights));
}

TEST(GgufConfig, ReadsKeysAndTensors) {
  ModelSpec spec = Written();
  spec.family = ModelFamily::kQwen3;
  spec.qk_norm = QkNorm::kHead;
  spec.tied_head = true;
  const auto bytes = Gguf(spec).Finish();
  const auto found = SpecOf(bytes);
  ASSERT_TRUE(found.ok()) << Message(found.status());
  EXPECT_EQ(found->ToString(), spec.ToString());
  EXPECT_THAT(found->eos, ElementsAre(2));

  spec = Written();
  spec.qkv_bias = true;
  spec.rope.pairing = RopePairing::kAdjacent;
  const auto llama = SpecOf(Gguf(spec).Finish());
  ASSERT_TRUE(llama.ok()) << Message(llama.status());
  EXPECT_EQ(llama->ToString(), spec.ToString());
}

TEST(GgufConfig, ReadsRopeScaling) {
  GgufWriter writer = Gguf(Written());
  writer.SetString("llama.rope.scaling.type", "yarn");
  writer.SetFloat("llama.rope.scaling.factor", 4);
  writer.SetUint32("llama.rope.scaling.original_context_length", 1024);
  auto spec = SpecOf(writer.Finish());
  ASSERT_TRUE(spec.ok()) << Message(spec.status());
  EXPECT_EQ(spec->rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(spec->context_length, 4096);
  EXPECT_NEAR(spec->rope.attention_factor, 1.138629, 1e-6);

  writer = Gguf(Written());
  writer.SetFloat("llama.rope.scale_linear", 2);
  spec = SpecOf(writer.Finish());
  ASSERT_TRUE(spec.ok()) << Message(spec.status());
  EXPECT_EQ(spec->rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(spec->context_length, 2048);

  writer = Gguf(Written());
  writer.SetString("llama.rope.scaling.type", "longrope");
  writer.SetFloat("llama.rope.scaling.factor", 2);
  EXPECT_THAT(Message(SpecOf(writer.Finish()).status()),
              HasSubstr("rope.scaling.type longrope is not supported"));
}

TEST(GgufConfig, NamesWhatIsWrong) {
  GgufWriter other;
  other.SetString("general.architecture", "mamba");
  EXPECT_THAT(Message(SpecOf(other.Finish()).status()),
              HasSubstr("architecture mamba is not supported; supported are llama qwen2 qwen3"));
  EXPECT_THAT(Message(SpecOf(GgufWriter().Finish()).status()),
              HasSubstr("general.architecture is missing"));
  GgufWriter empty;
  empty.SetString("general.architecture", "llama");
  EXPECT_THAT(Message(SpecOf(empty.Finish()).status()),
              HasSubstr("metadata key llama.embedding_length is missing"));
  ModelSpec odd = Written();
  odd.kv_heads = 3;
  EXPECT_THAT(Message(SpecOf(Gguf(odd).Finish()).status()),
              HasSubstr("must be a multiple of the number of KV heads 3"));
  ModelSpec qwen = Written();
  qwen.family = ModelFamily::kQwen3;
  qwen.qk_norm = QkNorm::kHead;
  GgufWriter experts = Gguf(qwen);
  experts.SetUint32("qwen3.expert_count", 8);
  EXPECT_THAT(
      Message(SpecOf(experts.Finish()).status()),
      HasSubstr("qwen3.expert_count: files of this architecture with experts are not supported"));
  ModelSpec glm = Written();
  glm.family = ModelFamily::kGlm4;
  GgufWriter vision = Gguf(glm);
  vision.SetUint32("glm4.rope.dimension_sections", 8);
  EXPECT_THAT(
      Message(SpecOf(vision.Finish()).status()),
      HasSubstr("glm4.rope.dimension_sections: rope in sections, which vision models have"));
  GgufWriter dense = Gguf(Written());
  dense.SetUint32("llama.expert_count", 8);
  dense.SetUint32("llama.expert_used_count", 2);
  EXPECT_THAT(Message(SpecOf(dense.Finish()).status()), HasSubstr("feed-forward size is 0"));
}

TEST(GgufConfig, NamesWhatIsWrongInMoreFamilies) {
  const auto error = [](ModelFamily family, const auto& spoil) {
    ModelSpec spec = Written();
    spec.family = family;
    if (family == ModelFamily::kOlmo2) {
      spec.residual = ResidualForm::kPostNorm;
      spec.qk_norm = QkNorm::kProjection;
    }
    GgufWriter writer = Gguf(spec);
    spoil(writer);
    return std::string(Message(SpecOf(writer.Finish()).status()));
  };
  EXPECT_THAT(error(ModelFamily::kOlmo2,
                    [](GgufWriter& to) {
                      to.SetUint32("olmo2.attention.sliding_window", 8);
                      to.SetUint32("olmo2.attention.sliding_window_pattern", 4);
                    }),
              HasSubstr("sliding_window_pattern is an integer; it must be an array of booleans"));
  EXPECT_THAT(error(ModelFamily::kGranite,
                    [](GgufWriter& to) { to.SetFloat("granite.residual_scale", 0); }),
              HasSubstr("residual_scale is 0; it must be between"));
  EXPECT_THAT(error(ModelFamily::kGranite,
                    [](GgufWriter& to) { to.SetString("granite.logit_scale", "x"); }),
              HasSubstr("granite.logit_scale"));
  EXPECT_THAT(error(ModelFamily::kQwen2Moe,
                    [](GgufWriter& to) {
                      to.SetUint32("qwen2moe.expert_count", 8);
                      to.SetUint32("qwen2moe.expert_used_count", 2);
                    }),
              HasSubstr("qwen2moe.expert_shared_feed_forward_length is missing"));
  EXPECT_THAT(error(ModelFamily::kGraniteMoe,
                    [](GgufWriter& to) {
                      to.SetUint32("granitemoe.expert_shared_feed_forward_length", 8);
                    }),
              HasSubstr("shared experts are not supported"));
  EXPECT_THAT(error(ModelFamily::kPhi3,
                    [](GgufWriter& to) {
                      const float factors[] = {1, 2, 3, 4};
                      const int64_t shape[] = {4};
                      to.AddTensor("rope_factors_long.weight",
                                   DType::kF32,
                                   shape,
                                   std::as_bytes(std::span(factors)));
                    }),
              HasSubstr("tensor rope_factors_short.weight is missing"));
}

// Every fourth layer of SmolLM3 does not rotate; the files do not state it.
TEST(GgufConfig, ReadsSmolLm3) {
  ModelSpec spec = Written();
  spec.family = ModelFamily::kSmolLm3;
  spec.layers.resize(9);
  const auto found = SpecOf(Gguf(spec).Finish());
  ASSERT_TRUE(found.ok()) << Message(found.status());
  std::vector<bool> rotary;
  for (const LayerSpec& layer : found->layers) rotary.push_back(layer.rotary);
  EXPECT_THAT(rotary, ElementsAre(true, true, true, false, true, true, true, false, true));
}

TEST(GgufConfig, GateAndUpOfGlm4AreOneTensor) {
  ModelSpec spec;
  spec.family = ModelFamily::kGlm4;
  const Naming scheme = GgufNames(spec);
  for (const auto& [kind, part] : {std::pair(WeightKind::kGate, 0), {WeightKind::kUp, 1}}) {
    const TensorName name = NameOf({kind, 3}, scheme);
    EXPECT_EQ(name.tensor, "blk.3.ffn_up.weight");
    EXPECT_EQ(name.part, part);
    EXPECT_EQ(name.parts, 2);
  }
}

TEST(GgufConfig, ReadsMixtral) {
  ModelSpec spec = Written();
  spec.family = ModelFamily::kMixtral;
  spec.rope.pairing = RopePairing::kAdjacent;
  spec.intermediate = 0;
  spec.moe = {.experts = 4, .experts_per_token = 2, .intermediate = 32, .normalize = true};
  for (LayerSpec& layer : spec.layers) layer.moe = true;
  const auto found = SpecOf(Gguf(spec).Finish());
  ASSERT_TRUE(found.ok()) << Message(found.status());
  EXPECT_EQ(found->ToString(), spec.ToString());
}

TEST(DescribeUnread, TellsWhatTheFilesHoldAndNothingReads) {
  ModelSpec spec = Written();
  spec.rope.pairing = RopePairing::kAdjacent;
  GgufWriter writer = Gguf(spec);
  const int64_t shape[] = {8};
  const std::vector<std::byte> bytes(32);
  for (const char* name : {"blk.0.attn_q.scale",
                           "blk.1.attn_q.scale",
                           "blk.2.attn_q.weight",
                           "blk.4.attn_q.weight",
                           "mtp.weight"}) {
    writer.AddTensor(name, DType::kF32, shape, bytes);
  }
  const auto file = writer.Finish();
  const auto weights = WeightsOf(file);
  ASSERT_TRUE(weights.ok()) << Message(weights.status());
  EXPECT_EQ((*weights)->Unread().size(), (*weights)->Tensors().size());
  ASSERT_TRUE(StepRunner::Create(spec, **weights).ok());
  EXPECT_THAT(
      DescribeUnread(spec, **weights),
      ElementsAre("layers 2 to 4 of the files are not loaded: the configuration has 2 layers",
                  "blk.*.attn_q.scale is not loaded (2 tensors): the configuration does not use it",
                  "mtp.weight is not loaded (1 tensors): the configuration does not use it"));
}

}  // namespace
}  // namespace baton
