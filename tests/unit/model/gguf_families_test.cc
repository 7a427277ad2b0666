#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/model/describe_model.h"
#include "tests/unit/model/changed_gguf.h"
#include "tests/unit/model/step_runner.h"
#include "tests/unit/model/tiny_gguf.h"

// GGUF files that the package gguf has written (tests/data/tiny/README.md).
namespace baton {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

OpenedModel Open(const std::string& name) {
  auto model = OpenModel(TinyModelPath(name));
  BATON_CHECK(model.ok(), "{}", Message(model.status()));
  return *std::move(model);
}

std::vector<Logits> LogitsOf(const OpenedModel& model) {
  std::vector<TokenId> tokens(400);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<TokenId>((5 + 37 * i + i * i % 11) % 512);
  }
  const auto runner = StepRunner::Create(model.spec, *model.weights);
  BATON_CHECK(runner.ok(), "{}", Message(runner.status()));
  return (*runner)->RunAll(0, tokens, tokens.size());
}

// The converter writes the same one for all models with rope scaling by alpha, and for all of
// Nemotron-H.
int32_t ContextLengthInGguf(const ModelSpec& spec) {
  switch (spec.family) {
    case ModelFamily::kHunyuan:
    case ModelFamily::kHunyuanMoe:
      return 1 << 18;
    case ModelFamily::kNemotronH:
      return 1 << 20;
    default:
      return spec.context_length;
  }
}

void CheckThatLogitsAreThoseOf(const OpenedModel& checkpoint, const OpenedModel& gguf) {
  EXPECT_EQ(gguf.spec.family, checkpoint.spec.family);
  EXPECT_EQ(gguf.spec.eos, checkpoint.spec.eos);
  EXPECT_EQ(gguf.spec.context_length, ContextLengthInGguf(checkpoint.spec));
  const auto want = LogitsOf(checkpoint);
  const auto got = LogitsOf(gguf);
  ASSERT_EQ(got.size(), want.size());
  for (size_t row = 0; row < want.size(); ++row) {
    for (size_t i = 0; i < want[row].size(); ++i) {
      ASSERT_NEAR(got[row][i], want[row][i], 1e-3) << "row " << row << " token " << i;
    }
  }
  EXPECT_THAT(DescribeUnread(gguf.spec, *gguf.weights), IsEmpty());
}

class GgufFamily : public testing::TestWithParam<const char*> {};

TEST_P(GgufFamily, HasTheLogitsOfTheCheckpoint) {
  const std::string name = GetParam();
  const OpenedModel checkpoint = Open(name);
  const OpenedModel gguf = Open("gguf/" + name + ".gguf");
  if (name != "falcon_h1") {  // its factors are in the weights
    EXPECT_FLOAT_EQ(gguf.spec.attention_scale, checkpoint.spec.attention_scale);
  }
  EXPECT_EQ(gguf.spec.moe.gate, checkpoint.spec.moe.gate);
  CheckThatLogitsAreThoseOf(checkpoint, gguf);
}

INSTANTIATE_TEST_SUITE_P(Files,
                         GgufFamily,
                         testing::Values("deepseek_v3",
                                         "deepseek_v2_qlora",
                                         "gpt_oss",
                                         "gpt_oss_mxfp4",
                                         "cohere",
                                         "cohere2",
                                         "olmo3",
                                         "exaone4",
                                         "glm4_moe",
                                         "dots1",
                                         "minimax_m2",
                                         "ernie4_5_moe",
                                         "stablelm",
                                         "hunyuan_v1_dense",
                                         "hunyuan_v1_moe",
                                         "phi",
                                         "gpt_neox",
                                         "phi3_longrope",
                                         "qwen3_next",
                                         "qwen3_5_text",
                                         "qwen3_5_moe_text",
                                         "falcon_h1",
                                         "mamba2",
                                         "jamba",
                                         "nemotron_h",
                                         "kimi_linear"),
                         [](const auto& test) { return std::string(test.param); });

TEST(DeepSeekGguf, AbsentOnesHaveTheirDefaults) {
  ChangedGguf file("deepseek_v3");
  for (const char* key : {"expert_gating_func",
                          "expert_weights_norm",
                          "expert_weights_scale",
                          "expert_group_count",
                          "expert_group_used_count",
                          "expert_shared_count",
                          "rope.scaling.yarn_log_multiplier"}) {
    std::string other = std::string("deepseek2.") + key;
    const std::string name = other;
    other.back() = '_';
    file.Rename(name, other);
  }
  const auto model = file.Open();
  ASSERT_TRUE(model.ok()) << Message(model.status());
  const MoeSpec& moe = model->spec.moe;
  EXPECT_EQ(model->spec.family, ModelFamily::kDeepSeekV2);
  EXPECT_EQ(moe.score, RouterScore::kSoftmax);
  EXPECT_FALSE(moe.normalize);
  EXPECT_EQ(moe.scale, 1);
  EXPECT_EQ(moe.groups, 1);
  EXPECT_EQ(moe.groups_per_token, 1);
  EXPECT_EQ(moe.shared_intermediate, 0);
  EXPECT_EQ(model->spec.attention_scale, 0);
}

TEST(DeepSeekGguf, BadOnesAreNamed) {
  const auto error = [](const std::string& key, uint32_t value) {
    ChangedGguf file("deepseek_v3");
    file.Set("deepseek2." + key, value);
    return file.Error();
  };
  EXPECT_THAT(error("attention.q_lora_rank", 0), HasSubstr("q_lora_rank is 0; it must be between"));
  EXPECT_THAT(error("attention.kv_lora_rank", 0), HasSubstr("kv_lora_rank is 0; it must be"));
  EXPECT_THAT(error("attention.kv_lora_rank", 5000), HasSubstr("is 5008; it must be between"));
  EXPECT_THAT(error("attention.key_length_mla", 1), HasSubstr("key_length_mla is 1; it must be"));
  EXPECT_THAT(error("attention.key_length_mla", 8),
              HasSubstr("head dimension without rope is 0; it must be between"));
  EXPECT_THAT(error("attention.value_length_mla", 0), HasSubstr("value_length_mla is 0"));
  EXPECT_THAT(error("attention.value_length_mla", 8),
              HasSubstr("blk.0.attn_v_b.weight has shape [4, 16, 32]; expected [4, 8, 32]"));
  EXPECT_THAT(error("rope.dimension_count", 0), HasSubstr("rope.dimension_count is 0"));
  EXPECT_THAT(error("rope.dimension_count", 7), HasSubstr("must be even"));
  EXPECT_THAT(error("expert_count", 0), HasSubstr("expert_count is 0; it must be between"));
  EXPECT_THAT(error("expert_used_count", 17), HasSubstr("experts per token is 17"));
  EXPECT_THAT(error("expert_feed_forward_length", 0), HasSubstr("feed_forward_length is 0"));
  EXPECT_THAT(error("expert_group_count", 3), HasSubstr("must be a multiple of the number of"));
  EXPECT_THAT(error("expert_group_used_count", 5), HasSubstr("expert groups per token is 5"));
  EXPECT_THAT(error("expert_shared_count", 2000), HasSubstr("expert_shared_count is 2000"));
  EXPECT_THAT(error("expert_gating_func", 3), HasSubstr("expert_gating_func is 3; it must be"));
  ChangedGguf file("deepseek_v3");
  file.SetFloat("deepseek2.expert_weights_scale", -1);
  EXPECT_THAT(file.Error(), HasSubstr("expert_weights_scale is -1; it must be between"));
}

TEST(DeepSeekGguf, MissingPartsAndUnsupportedOnesAreNamed) {
  ChangedGguf values("deepseek_v3");
  values.Rename("blk.2.attn_v_b.weight", "blk.2.attn_x_b.weight");
  EXPECT_THAT(values.Error(), HasSubstr("tensor blk.2.attn_v_b.weight is missing"));
  ChangedGguf rank("deepseek_v3");
  rank.Rename("deepseek2.attention.kv_lora_rank", "deepseek2.attention.kv_lora_xxxx");
  EXPECT_THAT(rank.Error(), HasSubstr("deepseek2.attention.kv_lora_rank is missing"));
  ChangedGguf temperature("deepseek_v3");
  temperature.Rename("deepseek2.rope.scaling.yarn_beta_slow",
                     "deepseek2.attention.temperature_scale");
  EXPECT_THAT(temperature.Error(),
              HasSubstr("deepseek2.attention.temperature_scale is not supported"));
}

TEST(GptOssGguf, MissingPartsAndOtherTypesAreNamed) {
  for (const char* name : {"blk.3.attn_sinks.weight",
                           "blk.3.ffn_gate_inp.bias",
                           "blk.3.ffn_up_exps.bias",
                           "blk.3.ffn_down_exps.weight",
                           "blk.3.post_attention_norm.weight"}) {
    ChangedGguf file("gpt_oss");
    std::string other = name;
    other[4] = '7';
    file.Rename(name, other);
    EXPECT_THAT(file.Error(), HasSubstr(std::string("tensor ") + name + " is missing"));
  }
  ChangedGguf width("gpt_oss");
  width.Set("gpt-oss.expert_feed_forward_length", 32);
  EXPECT_THAT(width.Error(), HasSubstr("blk.0.ffn_gate_exps.weight has shape"));
  ChangedGguf type("gpt_oss");
  type.SetType("blk.0.ffn_up_exps.weight", 16);
  EXPECT_THAT(type.Error(),
              HasSubstr("blk.0.ffn_up_exps.weight is of ggml type 16 (IQ2_XXS), which is not "
                        "supported; supported are F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K "
                        "Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4"));
}

// Its files do not have the scale of attention, which is that of head_dim in all models but the
// largest ones. The scale of the tiny models is another one.
TEST(GemmaGguf, HasTheLogitsOfTheCheckpointButForTheScale) {
  for (const std::string name : {"gemma2", "gemma3_text"}) {
    SCOPED_TRACE(name);
    OpenedModel checkpoint = Open(name);
    checkpoint.spec.attention_scale = 1 / std::sqrt(24.0f);
    CheckThatLogitsAreThoseOf(checkpoint, Open("gguf/" + name + ".gguf"));
  }
}

TEST(GemmaGguf, AbsentKeysHaveTheirDefaults) {
  const auto without = [](const std::string& file, const std::vector<std::string>& keys) {
    ChangedGguf changed(file);
    for (const std::string& key : keys) {
      std::string other = key;
      other.back() = '_';
      changed.Rename(key, other);
    }
    return changed.Open()->spec;
  };
  ModelSpec spec = without("gemma2",
                           {"gemma2.attention.sliding_window",
                            "gemma2.attn_logit_softcapping",
                            "gemma2.final_logit_softcapping"});
  EXPECT_EQ(spec.attention_cap, 50);
  EXPECT_EQ(spec.logit_cap, 30);
  EXPECT_EQ(spec.layers[2].window, 4096);
  EXPECT_EQ(spec.layers[3].window, 0);
  spec = without("gemma3_text",
                 {"gemma3.attention.sliding_window_pattern", "gemma3.rope.freq_base_swa"});
  EXPECT_EQ(spec.layers[4].window, 32);
  EXPECT_EQ(spec.layers[5].window, 0);
  EXPECT_EQ(spec.window_rope->theta, 10000);
  EXPECT_EQ(spec.logit_cap, 0);
}

TEST(GemmaGguf, TheLargestModelsHaveAScaleOfTheirOwn) {
  ChangedGguf file("gemma3_text");
  file.Set("gemma3.block_count", 62);
  EXPECT_EQ(file.Open()->spec.attention_scale, 1 / std::sqrt(64.0f / 4));
  ChangedGguf second("gemma2");
  second.Set("gemma2.block_count", 46);
  EXPECT_EQ(second.Open()->spec.attention_scale, 1 / std::sqrt(64.0f / 4));
}

TEST(GemmaGguf, BadKeysAreNamed) {
  ChangedGguf pattern("gemma3_text");
  pattern.Set("gemma3.attention.sliding_window_pattern", 0);
  EXPECT_THAT(pattern.Error(), HasSubstr("sliding_window_pattern is 0; it must be between"));
  ChangedGguf theta("gemma3_text");
  theta.SetFloat("gemma3.rope.freq_base_swa", 0);
  EXPECT_THAT(theta.Error(), HasSubstr("freq_base_swa is 0; it must be between"));
  ChangedGguf cap("gemma2");
  cap.SetFloat("gemma2.attn_logit_softcapping", -1);
  EXPECT_THAT(cap.Error(), HasSubstr("attn_logit_softcapping is -1; it must be between"));
  ChangedGguf norm("gemma2");
  norm.Rename("blk.3.post_ffw_norm.weight", "blk.7.post_ffw_norm.weight");
  EXPECT_THAT(norm.Error(), HasSubstr("tensor blk.3.post_ffw_norm.weight is missing"));
}

TEST(WindowGguf, WithoutAListEachFourthLayerHasNoWindow) {
  for (const std::string name :
       {"olmo2.attention.sliding_window_pattern", "exaone4.attention.sliding_window_pattern"}) {
    const bool olmo = name.starts_with("olmo");
    const ModelSpec spec = SpecWithout(olmo ? "olmo3" : "exaone4", name);
    EXPECT_EQ(spec.layers[2].window, 32);
    EXPECT_EQ(spec.layers[3].window, 0);
    EXPECT_EQ(spec.layers[3].rotary, olmo);
  }
}

TEST(WindowGguf, AListMustHaveAllLayers) {
  ChangedGguf file("exaone4");
  file.Set("exaone4.block_count", 3);
  EXPECT_THAT(file.Error(), HasSubstr("sliding_window_pattern has 4 entries for 3 layers"));
}

TEST(LongRopeGguf, TheContextLengthDecidesWhichFactorsHold) {
  EXPECT_THAT(Open("gguf/phi3_longrope.gguf").spec.rope.factors.at(1), 1.3f);
  ChangedGguf file("phi3_longrope");
  file.Set("phi3.context_length", 256);
  const auto model = file.Open();
  ASSERT_TRUE(model.ok()) << Message(model.status());
  EXPECT_EQ(model->spec.rope.factors.at(1), 1.1f);
  file.Set("phi3.rope.dimension_count", 8);
  EXPECT_THAT(file.Error(), HasSubstr("rope_factors_short.weight has shape [8]; expected 4"));
}

TEST(ExpertGguf, LayersOfPredictionAndOtherRoutersAreNotRun) {
  ChangedGguf file("glm4_moe");
  file.Set("glm4moe.nextn_predict_layers", 1);
  const auto model = file.Open();
  ASSERT_TRUE(model.ok()) << Message(model.status());
  EXPECT_EQ(model->spec.layer_count(), 2);
  file.Set("glm4moe.expert_gating_func", 1);
  EXPECT_THAT(file.Error(), HasSubstr("expert_gating_func is 1; it must be between 2 and 2"));
}

// The files do not have the size of chunks, nor the scaling of queries, nor which layers rotate.
// Those of the tiny model are others than those of the published models.
TEST(Llama4Gguf, HasTheLogitsOfTheCheckpointWithItsAttention) {
  const OpenedModel checkpoint = Open("llama4_text");
  OpenedModel gguf = Open("gguf/llama4_text.gguf");
  EXPECT_EQ(gguf.spec.moe.shared_intermediate, 48);
  EXPECT_EQ(gguf.spec.query_scaling.slope, 0.1f);
  EXPECT_EQ(gguf.spec.query_scaling.step, 8192);
  gguf.spec.query_scaling = checkpoint.spec.query_scaling;
  for (size_t i = 0; i < gguf.spec.layers.size(); ++i) {
    LayerSpec& layer = gguf.spec.layers[i];
    EXPECT_EQ(layer.chunk, i == 3 ? 0 : 8192);
    EXPECT_EQ(layer.rotary, i != 3);
    layer.chunk = checkpoint.spec.layers[i].chunk;
  }
  CheckThatLogitsAreThoseOf(checkpoint, gguf);
}

TEST(Llama4Gguf, MaverickHasNoNormsOfHeadsAndAWindowOf0NoChunks) {
  ChangedGguf file("llama4_text");
  file.Set("llama4.expert_count", 128);
  const auto maverick = file.Open();
  ASSERT_TRUE(maverick.ok()) << Message(maverick.status());
  EXPECT_EQ(maverick->spec.qk_norm, QkNorm::kNone);
  ChangedGguf window("llama4_text");
  window.Add("llama4.attention.sliding_window", 0);
  const auto whole = window.Open();
  ASSERT_TRUE(whole.ok()) << Message(whole.status());
  EXPECT_EQ(whole->spec.query_scaling.slope, 0);
  EXPECT_EQ(whole->spec.layers[0].chunk, 0);
  EXPECT_TRUE(whole->spec.layers[3].rotary);
  EXPECT_EQ(whole->spec.qk_norm, QkNorm::kUnitAfterRope);
}

TEST(StableLmGguf, NormsOfHeadsAreRefused) {
  ChangedGguf file("stablelm");
  file.Rename("blk.0.attn_output.weight", "blk.0.attn_q_norm.weight");
  EXPECT_THAT(file.Error(), HasSubstr("norms of heads are not supported"));
}

}  // namespace
}  // namespace baton
