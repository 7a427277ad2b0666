#include "common/model/hf_families.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/op_variants.h"
#include "tests/unit/model/hf_family_fixture.h"
#include "tests/unit/model/tiny_families.h"

// The configurations of the families besides Llama, Mistral and Qwen 2 and 3.
namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(HfFamilyTest, KeysOfPublishedCheckpointsMeanTheSame) {
  std::vector<std::string> families(std::begin(kTinyFamilies), std::end(kTinyFamilies));
  families.insert(families.end(), {"glm4", "phi3_longrope"});
  for (const std::string& family : families) {
    const ModelSpec published = Good(Tiny(family));
    EXPECT_THAT(family, testing::StartsWith(std::string(Name(published.family))));
    EXPECT_EQ(Good(Json::parse(*ReadFile(FileOf(family, "config.json")))).ToString(),
              published.ToString())
        << family;
    Json by_type = Tiny(family);
    by_type.erase("architectures");
    EXPECT_EQ(Good(by_type).family, published.family) << "by its model_type";
  }
}

TEST_F(HfFamilyTest, EachHasANameAndAnArchitectureOfItsOwn) {
  std::set<std::string_view> names;
  std::set<std::string_view> architectures;
  for (const HfFamily& family : HfFamilies()) {
    EXPECT_TRUE(names.insert(Name(family.family)).second) << Name(family.family);
    EXPECT_TRUE(architectures.insert(family.architecture).second) << family.architecture;
  }
}

// What a key that is absent means is not what it means for Llama.
TEST_F(HfFamilyTest, AbsentKeysHaveTheFamilysDefaults) {
  ModelSpec spec = Without("granite",
                           {"embedding_multiplier",
                            "residual_multiplier",
                            "attention_multiplier",
                            "logits_scaling",
                            "rms_norm_eps"});
  EXPECT_EQ(spec.embedding_scale, 1);
  EXPECT_EQ(spec.residual_scale, 1);
  EXPECT_EQ(spec.attention_scale, 1) << "not 1 / root of head_dim";
  EXPECT_EQ(spec.logit_scale, 1);
  EXPECT_EQ(spec.norm_epsilon, 1e-6f);
  EXPECT_EQ(Without("olmo2", {"rms_norm_eps"}).norm_epsilon, 1e-5f);
  spec = Without("seed_oss", {"head_dim", "attention_bias", "attention_out_bias"});
  EXPECT_EQ(spec.head_dim, 128);
  EXPECT_TRUE(spec.qkv_bias && !spec.o_bias);
  spec = Without("dots1",
                 {"n_group",
                  "topk_group",
                  "norm_topk_prob",
                  "routed_scaling_factor",
                  "n_shared_experts",
                  "first_k_dense_replace"});
  EXPECT_FALSE(spec.moe.normalize);
  EXPECT_EQ(spec.moe.scale, 1);
  EXPECT_EQ(spec.moe.groups, 1);
  EXPECT_EQ(spec.moe.shared_intermediate, 0);
  EXPECT_TRUE(spec.layers[0].moe);
  spec = Without("glm4_moe",
                 {"norm_topk_prob",
                  "n_shared_experts",
                  "first_k_dense_replace",
                  "partial_rotary_factor",
                  "use_qk_norm",
                  "head_dim"});
  EXPECT_TRUE(spec.moe.normalize && !spec.layers[0].moe && spec.layers[1].moe);
  EXPECT_EQ(spec.moe.shared_intermediate, 24);
  EXPECT_EQ(spec.head_dim, 128);
  EXPECT_EQ(spec.rope.rotary_dim, 64);
  EXPECT_EQ(spec.qk_norm, QkNorm::kNone);
  spec = Without("qwen2_moe", {"shared_expert_intermediate_size", "mlp_only_layers", "qkv_bias"});
  EXPECT_EQ(spec.moe.shared_intermediate, 5632);
  EXPECT_TRUE(spec.layers[0].moe && spec.qkv_bias && !spec.moe.normalize);
  spec = Without("smollm3", {"rope_theta", "no_rope_layers", "tie_word_embeddings"});
  EXPECT_EQ(spec.rope.theta, 2e6);
  EXPECT_TRUE(spec.tied_head);
  EXPECT_TRUE(spec.layers[2].rotary && !spec.layers[3].rotary);
  spec = Without("minimax_m2", {"rope_theta", "head_dim", "rotary_dim"});
  EXPECT_EQ(spec.rope.theta, 5e6);
  EXPECT_EQ(spec.rope.rotary_dim, 128);
  spec = Without(
      "cohere",
      {"rope_theta", "logit_scale", "use_qk_norm", "tie_word_embeddings", "layer_norm_eps"});
  EXPECT_EQ(spec.rope.theta, 5e5);
  EXPECT_EQ(spec.logit_scale, 0.0625f);
  EXPECT_EQ(spec.qk_norm, QkNorm::kNone);
  EXPECT_TRUE(spec.tied_head);
  EXPECT_EQ(spec.norm_epsilon, 1e-5f);
  spec = Without("stablelm", {"partial_rotary_factor", "use_qkv_bias", "use_parallel_residual"});
  EXPECT_EQ(spec.rope.rotary_dim, 4);
  EXPECT_EQ(spec.residual, ResidualForm::kPreNorm);
  EXPECT_FALSE(spec.qkv_bias);
  spec = Without("phi", {"partial_rotary_factor", "hidden_act"});
  EXPECT_EQ(spec.rope.rotary_dim, 8);
  EXPECT_EQ(spec.feed_forward, FeedForward::kGeluTanh);
  spec = Without("gpt_neox",
                 {"rotary_pct", "rotary_emb_base", "attention_bias", "use_parallel_residual"});
  EXPECT_EQ(spec.rope.rotary_dim, 4);
  EXPECT_EQ(spec.rope.theta, 10000);
  EXPECT_TRUE(spec.qkv_bias && spec.o_bias);
  EXPECT_EQ(spec.residual, ResidualForm::kParallelTwoNorms);
  EXPECT_EQ(Without("hunyuan_v1_dense", {"rope_scaling"}).rope.theta, 10000);
  spec = Without("hunyuan_v1_moe", {"rms_norm_eps", "tie_word_embeddings", "rope_theta"});
  EXPECT_EQ(spec.norm_epsilon, 1e-5f);
  EXPECT_NEAR(spec.rope.theta, 10000 * std::pow(1000.0, 16.0 / 14), 1);
  EXPECT_TRUE(!spec.tied_head && spec.moe.normalize && spec.layers[0].moe);
  EXPECT_EQ(spec.moe.shared_intermediate, 32);
  EXPECT_EQ(spec.intermediate, 0) << "no layer is dense";
  EXPECT_EQ(Without("phi3", {"sliding_window"}).layers[0].window, 0);
}

TEST_F(HfFamilyTest, AbsentKeysOfFamiliesWithSomeWindowsHaveTheirDefaults) {
  ModelSpec spec = Without("olmo3", {"rope_theta", "layer_types", "sliding_window"});
  EXPECT_EQ(spec.rope.theta, 5e5);
  EXPECT_EQ(spec.window_rope->theta, 5e5);
  EXPECT_EQ(spec.layers[2].window, 4096);
  EXPECT_EQ(spec.layers[3].window, 0);
  spec = Without("cohere2", {"logit_scale", "sliding_window_pattern", "tie_word_embeddings"});
  EXPECT_EQ(spec.logit_scale, 0.0625f);
  EXPECT_TRUE(spec.layers[2].rotary && !spec.layers[3].rotary && spec.tied_head);
  spec = Without("gemma3_text",
                 {"rope_theta",
                  "rope_local_base_freq",
                  "query_pre_attn_scalar",
                  "hidden_activation",
                  "_sliding_window_pattern",
                  "sliding_window_pattern",
                  "head_dim",
                  "tie_word_embeddings"});
  EXPECT_EQ(spec.rope.theta, 1e6);
  EXPECT_EQ(spec.window_rope->theta, 1e4);
  EXPECT_EQ(spec.attention_scale, 1.0f / 16);
  EXPECT_EQ(spec.head_dim, 256);
  EXPECT_TRUE(spec.tied_head && spec.layers[4].window > 0 && spec.layers[5].window == 0);
}

TEST_F(HfFamilyTest, AbsentKeysOfGptOssHaveTheirDefaults) {
  const ModelSpec spec = Without("gpt_oss",
                                 {"rope_theta",
                                  "rope_scaling",
                                  "layer_types",
                                  "sliding_window",
                                  "attention_bias",
                                  "head_dim",
                                  "rms_norm_eps",
                                  "swiglu_limit",
                                  "swiglu_alpha",
                                  "tie_word_embeddings"});
  EXPECT_EQ(spec.rope.theta, 150000);
  EXPECT_EQ(spec.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(spec.rope.factor, 32);
  EXPECT_EQ(spec.rope.original_context, 4096);
  EXPECT_NEAR(spec.rope.attention_factor, 1.3466, 1e-4);
  EXPECT_FALSE(spec.rope.truncate);
  EXPECT_EQ(spec.context_length, 131072);
  EXPECT_EQ(spec.layers[0].window, 128) << "the first layer has a window";
  EXPECT_EQ(spec.layers[1].window, 0);
  EXPECT_TRUE(spec.qkv_bias && spec.o_bias && spec.attention_sinks && spec.moe.biases);
  EXPECT_EQ(spec.head_dim, 64);
  EXPECT_EQ(spec.norm_epsilon, 1e-5f);
  EXPECT_EQ(spec.moe.gate, (ExpertGate{.limit = 7, .alpha = 1.702f}));
  EXPECT_TRUE(spec.moe.normalize && !spec.tied_head);
}

TEST_F(HfFamilyTest, AbsentKeysOfErnieHaveTheirDefaults) {
  const ModelSpec spec = Without("ernie4_5_moe",
                                 {"rope_theta",
                                  "rms_norm_eps",
                                  "use_bias",
                                  "tie_word_embeddings",
                                  "moe_num_shared_experts",
                                  "moe_norm_min",
                                  "moe_layer_start_index",
                                  "moe_layer_end_index",
                                  "moe_layer_interval"});
  EXPECT_EQ(spec.rope.theta, 5e5);
  EXPECT_EQ(spec.rope.pairing, RopePairing::kAdjacent);
  EXPECT_EQ(spec.norm_epsilon, 1e-5f);
  EXPECT_FALSE(spec.qkv_bias || spec.o_bias || spec.mlp_bias || spec.head_bias);
  EXPECT_TRUE(spec.tied_head);
  EXPECT_EQ(spec.moe.shared_intermediate, 2 * 24);
  EXPECT_EQ(spec.moe.least_sum, 1e-12f);
  EXPECT_TRUE(spec.moe.normalize && spec.moe.selection_bias);
  EXPECT_TRUE(!spec.layers[0].moe && spec.layers[1].moe && spec.layers[2].moe);
}

TEST_F(HfFamilyTest, ExpertsOfErnieAreInARangeOfLayers) {
  const auto layers = [&](int first, int last, int interval) {
    Json config = Tiny("ernie4_5_moe");
    config["num_hidden_layers"] = 6;
    config["moe_layer_start_index"] = first;
    config["moe_layer_end_index"] = last;
    config["moe_layer_interval"] = interval;
    std::string kinds;
    for (const LayerSpec& layer : Good(config).layers) kinds += layer.moe ? 'x' : '-';
    return kinds;
  };
  EXPECT_EQ(layers(1, -1, 1), "-xxxxx");
  EXPECT_EQ(layers(2, 4, 1), "--xxx-");
  EXPECT_EQ(layers(2, 5, 2), "---x-x") << "every second layer of the model";
  EXPECT_EQ(layers(0, 9, 1), "xxxxxx");
}

TEST_F(HfFamilyTest, Gemma2HasCapsUnlessTheyAreNull) {
  ModelSpec spec = Without("gemma2",
                           {"attn_logit_softcapping",
                            "final_logit_softcapping",
                            "query_pre_attn_scalar",
                            "hidden_activation",
                            "head_dim",
                            "sliding_window",
                            "rms_norm_eps",
                            "tie_word_embeddings"});
  EXPECT_EQ(spec.attention_cap, 50);
  EXPECT_EQ(spec.logit_cap, 30);
  EXPECT_EQ(spec.attention_scale, 1.0f / 16);
  EXPECT_EQ(spec.head_dim, 256);
  EXPECT_EQ(spec.norm_epsilon, 1e-6f);
  EXPECT_EQ(spec.qk_norm, QkNorm::kNone);
  EXPECT_TRUE(spec.tied_head && spec.layers[0].window == 4096 && spec.layers[1].window == 0);
  EXPECT_FALSE(spec.window_rope.has_value());
  Json config = Tiny("gemma2");
  EXPECT_EQ(Good(config).attention_cap, 3);
  EXPECT_EQ(Good(config).logit_cap, 4);
  config["attn_logit_softcapping"] = config["final_logit_softcapping"] = nullptr;
  EXPECT_EQ(Good(config).attention_cap, 0);
  EXPECT_EQ(Good(config).logit_cap, 0);
  EXPECT_THAT(VariantsOf(Good(config)),
              ElementsAre(OpVariant::kScale, OpVariant::kGatedActivation));
}

// The scaling is that of the layers without a window.
TEST_F(HfFamilyTest, LayersWithAWindowHaveARopeOfTheirOwn) {
  const ModelSpec gemma = Good(Tiny("gemma3_text"));
  EXPECT_EQ(gemma.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(gemma.window_rope->scaling, RopeScaling::kNone);
  EXPECT_EQ(gemma.context_length, 2048) << "the one of the file has the scaling";
  EXPECT_EQ(Good(Tiny("olmo3")).window_rope->scaling, RopeScaling::kNone);
  EXPECT_FALSE(Good(Tiny("cohere2")).window_rope.has_value());
}

// The reference implementation rounds the root of the hidden size to the type of the weights.
TEST_F(HfFamilyTest, EmbeddingsOfGemmaHaveAScaleOfTheirType) {
  Json config = Tiny("gemma3_text");
  config["hidden_size"] = 1152;  // the root is 33.94
  EXPECT_EQ(Good(config).embedding_scale, 34.0f);
  config["torch_dtype"] = "float32";
  EXPECT_NEAR(Good(config).embedding_scale, 33.9411, 1e-4);
}

TEST_F(HfFamilyTest, ReadsWhatVariesInAFamily) {
  Json config = Tiny("stablelm");
  config["use_parallel_residual"] = true;
  EXPECT_EQ(Good(config).residual, ResidualForm::kParallel);
  config = Tiny("phi");
  config["hidden_act"] = "gelu";
  EXPECT_EQ(Good(config).feed_forward, FeedForward::kGelu);
  config = Tiny("gpt_neox");
  config["use_parallel_residual"] = false;
  EXPECT_EQ(Good(config).residual, ResidualForm::kPreNorm);
  config = Tiny("dots1");
  config["n_group"] = 4;
  config["topk_group"] = 2;
  EXPECT_EQ(Good(config).moe.groups, 4);
  EXPECT_EQ(Good(config).moe.groups_per_token, 2);
  config = Tiny("ernie4_5_moe");
  config["use_bias"] = true;
  EXPECT_TRUE(Good(config).qkv_bias && Good(config).o_bias && Good(config).mlp_bias);
  EXPECT_TRUE(Good(config).head_bias);
  config = Tiny("hunyuan_v1_dense");
  EXPECT_NEAR(Good(config).rope.theta, 10000 * std::pow(1000.0, 16.0 / 14), 1);
  config = Tiny("hunyuan_v1_moe");
  const std::string plain = Good(config).ToString();
  config["num_experts"] = {8, 8, 8};
  config["moe_topk"] = {2, 2, 2};
  EXPECT_EQ(Good(config).ToString(), plain) << "published files list them for each layer";
  config = Tiny("smollm3");
  config["no_rope_layer_interval"] = 2;
  config.erase("no_rope_layers");
  EXPECT_FALSE(Good(config).layers[1].rotary);
  config["use_sliding_window"] = true;
  config["sliding_window"] = 32;
  config.erase("layer_types");
  EXPECT_EQ(Good(config).layers[0].window, 0);
  EXPECT_EQ(Good(config).layers[1].window, 32) << "layers without rope have the window";
}

// The context length decides, because all positions of a sequence need the same factors.
TEST_F(HfFamilyTest, LongRopeHasTheFactorsOfItsContextLength) {
  Json config = Tiny("phi3_longrope");
  EXPECT_EQ(Good(config).rope.factors[1], 1.3);
  EXPECT_NEAR(Good(config).rope.attention_factor, std::sqrt(1 + 3.0 / 8), 1e-12);
  config["max_position_embeddings"] = 256;
  EXPECT_EQ(Good(config).rope.factors[1], 1.1);
  EXPECT_EQ(Good(config).rope.attention_factor, 1);
  config["max_position_embeddings"] = 2048;
  config["rope_scaling"].erase("original_max_position_embeddings");
  for (const char* name : {"su", "yarn"}) {
    config["rope_scaling"]["type"] = name;
    EXPECT_EQ(Good(config).rope.original_context, 256) << "of the whole configuration";
  }
  config["rope_scaling"]["long_mscale"] = 1.2;
  EXPECT_THAT(Message(Read(config).status()), HasSubstr("long_mscale is not supported"));
}

TEST_F(HfFamilyTest, LayersOfExaoneWithoutAWindowRotateIfNoneHasOne) {
  const auto windows = [](const ModelSpec& spec) {
    std::vector<std::pair<int, bool>> layers;
    for (const LayerSpec& layer : spec.layers) layers.emplace_back(layer.window, layer.rotary);
    return layers;
  };
  using Layer = std::pair<int, bool>;
  Json config = Tiny("exaone4");
  config.erase("layer_types");
  EXPECT_THAT(windows(Good(config)),
              ElementsAre(Layer(32, true), Layer(32, true), Layer(32, true), Layer(0, false)));
  config["sliding_window_pattern"] = 2;
  EXPECT_THAT(windows(Good(config)),
              ElementsAre(Layer(32, true), Layer(0, false), Layer(32, true), Layer(0, false)));
  config["sliding_window"] = nullptr;
  EXPECT_THAT(windows(Good(config)),
              ElementsAre(Layer(0, true), Layer(0, true), Layer(0, true), Layer(0, true)));
  config.erase("sliding_window");
  EXPECT_EQ(windows(Good(config))[0], Layer(4096, true));
}

TEST_F(HfFamilyTest, ResidualsWithoutInputNormsHaveNoScale) {
  ModelSpec spec = Good(Tiny("olmo2"));
  spec.residual_scale = 0.5f;
  EXPECT_THAT(Message(spec.Validate("spec")),
              HasSubstr("spec: residual scale 0.5 must be 1 in layers without input norms"));
  spec = Good(Tiny("dots1"));
  spec.feed_forward = FeedForward::kGelu;
  EXPECT_THAT(Message(spec.Validate("spec")),
              HasSubstr("experts must have feed-forward networks gated by silu"));
  spec = Good(Tiny("granite"));
  spec.embedding_scale = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(Message(spec.Validate("spec")), HasSubstr("embedding scale is nan"));
}

TEST_F(HfFamilyTest, TellsWhatABackendNeeds) {
  const auto variants = [&](const std::string& family) { return VariantsOf(Good(Tiny(family))); };
  using enum OpVariant;
  EXPECT_THAT(variants("glm4"), IsEmpty());
  EXPECT_THAT(variants("seed_oss"), IsEmpty());
  EXPECT_THAT(variants("smollm3"), IsEmpty());
  EXPECT_THAT(variants("phi3"), IsEmpty());
  EXPECT_THAT(variants("granite"), ElementsAre(kScale));
  EXPECT_THAT(variants("granitemoe"), ElementsAre(kScale));
  EXPECT_THAT(variants("olmo2"), ElementsAre(kProjectionNorm, kResidualGemm));
  EXPECT_THAT(variants("exaone4"), ElementsAre(kResidualGemm));
  EXPECT_THAT(variants("dots1"), ElementsAre(kRouting));
  EXPECT_THAT(variants("glm4_moe"), ElementsAre(kRouting));
  EXPECT_THAT(variants("qwen2_moe"), ElementsAre(kSigmoidGate));
  EXPECT_THAT(variants("minimax_m2"), ElementsAre(kProjectionNorm, kRouting));
  EXPECT_THAT(variants("cohere"), ElementsAre(kLayerNorm, kHeadLayerNorm));
  EXPECT_THAT(variants("hunyuan_v1_dense"), ElementsAre(kHeadNormAfterRope));
  EXPECT_THAT(variants("hunyuan_v1_moe"), ElementsAre(kHeadNormAfterRope));
  EXPECT_THAT(variants("stablelm"), ElementsAre(kLayerNorm));
  EXPECT_THAT(variants("phi"), ElementsAre(kLayerNorm, kActivation));
  EXPECT_THAT(variants("gemma3_text"), ElementsAre(kScale, kGatedActivation));
  EXPECT_THAT(variants("cohere2"), ElementsAre(kLayerNorm));
  EXPECT_THAT(variants("gpt_neox"), ElementsAre(kLayerNorm, kActivation));
  EXPECT_THAT(variants("gemma2"), ElementsAre(kScale, kGatedActivation, kSoftCap));
  EXPECT_THAT(variants("ernie4_5_moe"), ElementsAre(kRouting));
  EXPECT_THAT(variants("gpt_oss"), ElementsAre(kAttentionSinks, kExpertBias, kClampedGate));
  EXPECT_THAT(
      variants("llama4_text"),
      ElementsAre(kHeadNormAfterRope, kRouting, kWeightedInputs, kChunkedAttention, kQueryScaling));
}

}  // namespace
}  // namespace baton
