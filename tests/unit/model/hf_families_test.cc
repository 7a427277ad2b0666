#include "common/model/hf_families.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/mapped_file.h"
#include "common/model/hf_config.h"
#include "common/model/op_variants.h"
#include "tests/support/temporary_folder.h"

// The configurations of the families besides Llama, Mistral and Qwen 2 and 3.
namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

std::string FileOf(const std::string& family, const std::string& name) {
  return std::string(BATON_TEST_DATA) + "/tiny/" + family + "/" + name;
}

struct BadMember {
  std::string family;
  std::string key;
  Json value;
  std::string error;
};

class HfFamilyTest : public testing::Test {
 protected:
  StatusOr<ModelSpec> Read(const Json& config) {
    folder_.Write("config.json", config.dump());
    return SpecFromHfDirectory(folder_.path());
  }
  ModelSpec Good(const Json& config) {
    const auto spec = Read(config);
    EXPECT_TRUE(spec.ok()) << Message(spec.status());
    return spec.ok() ? *spec : ModelSpec{};
  }
  // The tiny model's configuration in published keys.
  static Json Tiny(const std::string& family) {
    return Json::parse(*ReadFile(FileOf(family, "config.published.json")));
  }
  // The same, without the keys of `absent`.
  ModelSpec Without(const std::string& family, const std::vector<std::string>& absent) {
    Json config = Tiny(family);
    for (const std::string& key : absent) config.erase(key);
    return Good(config);
  }
  // Reads the tiny model's configuration with the bad member in it.
  void CheckBad(const BadMember& bad) {
    Json config = Tiny(bad.family);
    config[bad.key] = bad.value;
    const auto spec = Read(config);
    const std::string error(spec.ok() ? "no error" : Message(spec.status()));
    EXPECT_THAT(error, HasSubstr(bad.error)) << bad.family << " " << bad.key;
    EXPECT_THAT(error, HasSubstr("config.json: ")) << bad.family << " " << bad.key;
  }

  const TemporaryFolder folder_;
};

constexpr const char* kTinyFamilies[] = {
    "glm4",
    "granite",
    "granitemoe",
    "olmo2",
    "seed_oss",
    "exaone4",
    "dots1",
    "glm4_moe",
    "qwen2_moe",
    "phi3",
    "phi3_longrope",
    "smollm3",
    "minimax_m2",
    "cohere",
    "hunyuan_v1_dense",
    "stablelm",
    "phi",
    "olmo3",
    "cohere2",
    "gemma3_text",
    "gpt_neox",
    "deepseek_v2_qlora",
    "deepseek_v2_noqlora",
    "deepseek_v3",
};

TEST_F(HfFamilyTest, KeysOfPublishedCheckpointsMeanTheSame) {
  for (const char* family : kTinyFamilies) {
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
  config = Tiny("hunyuan_v1_dense");
  EXPECT_NEAR(Good(config).rope.theta, 10000 * std::pow(1000.0, 16.0 / 14), 1);
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

TEST_F(HfFamilyTest, NamesFileAndKeyOfABadMember) {
  const std::vector<BadMember> cases = {
      {"granite",
       "embedding_multiplier",
       "x",
       "embedding_multiplier is string; it must be a number"},
      {"granite", "embedding_multiplier", 0, "embedding_multiplier is 0; it must be between 1e-06"},
      {"granite", "residual_multiplier", -1, "residual_multiplier is -1; it must be between"},
      {"granite", "residual_multiplier", true, "residual_multiplier is boolean"},
      {"granite", "attention_multiplier", 1e9, "attention_multiplier is 1000000000"},
      {"granite", "attention_multiplier", Json::array(), "attention_multiplier is array"},
      {"granite", "logits_scaling", 0, "logits_scaling is 0; it must be between"},
      {"granite", "logits_scaling", Json::object(), "logits_scaling is object"},
      {"granite", "mlp_bias", 1, "mlp_bias is number; it must be a boolean"},
      {"olmo2", "attention_bias", "no", "attention_bias is string; it must be a boolean"},
      {"olmo2", "rms_norm_eps", 2, "rms_norm_eps is 2; it must be between 0 and 1"},
      {"seed_oss", "attention_out_bias", 0, "attention_out_bias is number; it must be a boolean"},
      {"seed_oss", "head_dim", 1025, "head_dim is 1025; it must be between 1 and 1024"},
      {"exaone4", "sliding_window", 0, "sliding_window is 0; it must be between 1"},
      {"exaone4", "sliding_window", "x", "sliding_window is \"x\"; it must be an integer"},
      {"exaone4", "sliding_window_pattern", 0, "sliding_window_pattern is 0; it must be between 1"},
      {"exaone4", "layer_types", {"full_attention"}, "layer_types has 1 entries for 4 layers"},
      {"phi3", "sliding_window", -2, "sliding_window is -2; it must be between 1"},
      {"granite", "rope_scaling", {{"type", "longrope"}}, "rope_type longrope is not supported"},
      {"phi3", "rope_scaling", {{"type", "longrope"}}, "short_factor is missing"},
      {"phi3",
       "rope_scaling",
       {{"type", "su"}, {"short_factor", {1, 2}}},
       "rope scaling longrope has 2 factors; half of the rotary dimension 16 is needed"},
      {"phi3_longrope", "rope_scaling", {{"type", "yarn"}}, "long_factor is missing"},
      {"phi3_longrope",
       "rope_scaling",
       {{"type", "longrope"}, {"long_factor", {1, 2, 3, 4, 5, 6, 7, 0}}},
       "rope_scaling: long_factor has 0; it must be between 1e-06"},
      {"phi3_longrope",
       "rope_scaling",
       {{"type", "longrope"}, {"long_factor", {1, "x"}}},
       "rope_scaling: long_factor must be a list of numbers"},
      {"smollm3", "no_rope_layers", {1, 1}, "no_rope_layers has 2 entries for 4 layers"},
      {"smollm3",
       "no_rope_layers",
       {1, 1, 2, 0},
       "no_rope_layers has 2; it must be between 0 and 1"},
      {"smollm3", "no_rope_layers", "x", "no_rope_layers"},
      {"smollm3", "no_rope_layer_interval", 0, "no_rope_layer_interval is 0"},
      {"cohere", "logit_scale", 0, "logit_scale is 0; it must be between"},
      {"cohere", "logit_scale", "x", "logit_scale is string; it must be a number"},
      {"cohere", "layer_norm_eps", -1, "layer_norm_eps is -1; it must be between 0 and 1"},
      {"cohere", "use_qk_norm", 1, "use_qk_norm is number; it must be a boolean"},
      {"hunyuan_v1_dense",
       "rope_scaling",
       {{"type", "dynamic"}, {"alpha", 0.5}},
       "rope_scaling: alpha is 0.5; it must be between 1 and"},
      {"hunyuan_v1_dense",
       "rope_scaling",
       {{"type", "dynamic"}, {"alpha", "x"}},
       "alpha is string; it must be a number"},
      {"hunyuan_v1_dense",
       "rope_scaling",
       {{"type", "dynamic"}, {"factor", 2}},
       "rope_type dynamic is not supported"},
      {"stablelm", "use_qkv_bias", 1, "use_qkv_bias is number; it must be a boolean"},
      {"stablelm", "use_parallel_residual", 1, "use_parallel_residual is number"},
      {"stablelm", "qk_layernorm", true, "qk_layernorm is true; only false is supported"},
      {"phi", "qk_layernorm", true, "qk_layernorm is true; only false is supported"},
      {"phi", "hidden_act", "relu", "hidden_act is relu; only gelu, gelu_new, gelu_fast and"},
      {"phi", "hidden_act", 3, "hidden_act is number"},
      {"gpt_neox", "rotary_pct", 2, "rotary_pct is 2; it must be between 0 and 1"},
      {"gpt_neox", "rotary_emb_base", "x", "rotary_emb_base is string; it must be a number"},
      {"gpt_neox", "use_parallel_residual", 1, "use_parallel_residual is number"},
      {"gpt_neox", "attention_bias", "x", "attention_bias is string; it must be a boolean"},
      {"granite", "hidden_act", "gelu", "hidden_act is gelu; only silu is supported"},
  };
  for (const BadMember& bad : cases) CheckBad(bad);
}

TEST_F(HfFamilyTest, NamesFileAndKeyOfABadMemberOfFamiliesWithSomeWindows) {
  const std::vector<BadMember> cases = {
      {"olmo3", "sliding_window", 0, "sliding_window is 0; it must be between 1"},
      {"olmo3", "layer_types", {"full_attention"}, "layer_types has 1 entries for 4 layers"},
      {"cohere2", "sliding_window_pattern", 0, "sliding_window_pattern is 0; it must be between 1"},
      {"cohere2", "logit_scale", "x", "logit_scale is string; it must be a number"},
      {"gemma3_text", "sliding_window_pattern", "x", "sliding_window_pattern is \"x\""},
      {"gemma3_text", "rope_local_base_freq", 0, "rope_local_base_freq is 0; it must be between 1"},
      {"gemma3_text", "query_pre_attn_scalar", 0, "query_pre_attn_scalar is 0; it must be between"},
      {"gemma3_text", "hidden_activation", "silu", "hidden_activation is silu; only gelu_pytorch"},
      {"gemma3_text", "attn_logit_softcapping", 30, "attn_logit_softcapping is set; only null"},
      {"gemma3_text", "final_logit_softcapping", 30, "final_logit_softcapping is set; only null"},
      {"gemma3_text", "use_bidirectional_attention", true, "use_bidirectional_attention is true"},
      {"gemma3_text", "rope_parameters", {{"full_attention", Json::object()}}, "sliding_attention"},
  };
  for (const BadMember& bad : cases) CheckBad(bad);
}

TEST_F(HfFamilyTest, NamesFileAndKeyOfABadMemberOfExperts) {
  const std::vector<BadMember> cases = {
      {"granitemoe", "num_local_experts", nullptr, "num_local_experts is missing"},
      {"granitemoe", "num_local_experts", 1025, "num_local_experts is 1025; it must be between 1"},
      {"granitemoe", "num_experts_per_tok", nullptr, "num_experts_per_tok is missing"},
      {"granitemoe",
       "num_experts_per_tok",
       9,
       "experts per token is 9; it must be between 1 and 8"},
      {"dots1", "n_routed_experts", nullptr, "n_routed_experts is missing"},
      {"dots1", "num_experts_per_tok", 9, "experts per token is 9; it must be between 1 and 8"},
      {"dots1", "moe_intermediate_size", nullptr, "moe_intermediate_size is missing"},
      {"dots1", "moe_intermediate_size", 0, "moe_intermediate_size is 0"},
      {"dots1", "n_group", 0, "n_group is 0; it must be between 1 and 1024"},
      {"dots1",
       "n_group",
       3,
       "number of experts 8 must be a multiple of the number of expert groups"},
      {"dots1", "n_group", 16, "number of expert groups is 16; it must be between 1 and 8"},
      {"dots1", "topk_group", 2, "expert groups per token is 2; it must be between 1 and 1"},
      {"dots1", "topk_group", "x", "topk_group is \"x\"; it must be an integer"},
      {"dots1", "routed_scaling_factor", 0, "routed_scaling_factor is 0; it must be between"},
      {"dots1", "routed_scaling_factor", "x", "routed_scaling_factor is string"},
      {"dots1", "n_shared_experts", -1, "n_shared_experts is -1; it must be between 0"},
      {"dots1", "first_k_dense_replace", -1, "first_k_dense_replace is -1"},
      {"dots1", "norm_topk_prob", "x", "norm_topk_prob is string; it must be a boolean"},
      {"glm4_moe", "use_qk_norm", 1, "use_qk_norm is number; it must be a boolean"},
      {"glm4_moe", "partial_rotary_factor", 2, "partial_rotary_factor is 2; it must be between 0"},
      {"qwen2_moe", "shared_expert_intermediate_size", 0, "shared_expert_intermediate_size is 0"},
      {"qwen2_moe", "qkv_bias", "x", "qkv_bias is string; it must be a boolean"},
      {"qwen2_moe", "mlp_only_layers", {-1}, "mlp_only_layers has -1; it must be between 0"},
      {"minimax_m2", "rotary_dim", 34, "rotary dimension is 34; it must be between 2 and 32"},
      {"minimax_m2", "rotary_dim", 15, "rotary dimension 15 must be even"},
      {"minimax_m2", "scoring_func", "softmax", "scoring_func is softmax"},
      {"minimax_m2", "use_routing_bias", false, "use_routing_bias false"},
      {"minimax_m2", "use_qk_norm", false, "use_qk_norm false"},
      {"minimax_m2", "qk_norm_type", "per_head", "qk_norm_type is per_head"},
  };
  for (const BadMember& bad : cases) CheckBad(bad);
}

TEST_F(HfFamilyTest, TheGroupsOfATokenHaveItsExperts) {
  Json config = Tiny("dots1");
  config["n_group"] = 4;
  config["topk_group"] = 1;
  EXPECT_THAT(Message(Read(config).status()),
              HasSubstr("experts per token 3 are more than 1 of 4 groups of 8 experts have"));
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
  EXPECT_THAT(variants("stablelm"), ElementsAre(kLayerNorm));
  EXPECT_THAT(variants("phi"), ElementsAre(kLayerNorm, kActivation));
  EXPECT_THAT(variants("gemma3_text"), ElementsAre(kScale, kGatedActivation));
  EXPECT_THAT(variants("cohere2"), ElementsAre(kLayerNorm));
  EXPECT_THAT(variants("gpt_neox"), ElementsAre(kLayerNorm, kActivation));
}

}  // namespace
}  // namespace baton
