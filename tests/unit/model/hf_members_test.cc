#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/model/hf_family_fixture.h"

// Members of config.json that are missing, of a wrong type, out of range or not supported.
namespace baton {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

struct BadMember {
  std::string family;
  std::string key;
  Json value;
  std::string error;
};

class HfMemberTest : public HfFamilyTest {
 protected:
  // Reads the tiny model's configuration with the bad member in it.
  void CheckBad(const BadMember& bad) {
    Json config = Tiny(bad.family);
    config[bad.key] = bad.value;
    const auto spec = Read(config);
    const std::string error(spec.ok() ? "no error" : Message(spec.status()));
    EXPECT_THAT(error, HasSubstr(bad.error)) << bad.family << " " << bad.key;
    EXPECT_THAT(error, HasSubstr("config.json: ")) << bad.family << " " << bad.key;
  }
};

TEST_F(HfMemberTest, NamesFileAndKeyOfABadMember) {
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

TEST_F(HfMemberTest, NamesFileAndKeyOfABadMemberOfFamiliesWithSomeWindows) {
  const std::vector<BadMember> cases = {
      {"olmo3", "sliding_window", 0, "sliding_window is 0; it must be between 1"},
      {"olmo3", "layer_types", {"full_attention"}, "layer_types has 1 entries for 4 layers"},
      {"cohere2", "sliding_window_pattern", 0, "sliding_window_pattern is 0; it must be between 1"},
      {"cohere2", "logit_scale", "x", "logit_scale is string; it must be a number"},
      {"gemma3_text", "sliding_window_pattern", "x", "sliding_window_pattern is \"x\""},
      {"gemma3_text", "rope_local_base_freq", 0, "rope_local_base_freq is 0; it must be between 1"},
      {"gemma3_text", "query_pre_attn_scalar", 0, "query_pre_attn_scalar is 0; it must be between"},
      {"gemma3_text", "hidden_activation", "silu", "hidden_activation is silu; only gelu_pytorch"},
      {"gemma2", "attn_logit_softcapping", 0, "attn_logit_softcapping is 0; it must be between"},
      {"gemma2", "attn_logit_softcapping", "x", "attn_logit_softcapping is string; it must be"},
      {"gemma2",
       "final_logit_softcapping",
       -1,
       "final_logit_softcapping is -1; it must be between"},
      {"gemma2", "final_logit_softcapping", true, "final_logit_softcapping is boolean; it must be"},
      {"gemma2", "query_pre_attn_scalar", 0, "query_pre_attn_scalar is 0; it must be between"},
      {"gemma2", "use_bidirectional_attention", true, "use_bidirectional_attention is true"},
      {"gemma3_text", "attn_logit_softcapping", 30, "attn_logit_softcapping is set; only null"},
      {"gemma3_text", "final_logit_softcapping", 30, "final_logit_softcapping is set; only null"},
      {"gemma3_text", "use_bidirectional_attention", true, "use_bidirectional_attention is true"},
      {"gemma3_text", "rope_parameters", {{"full_attention", Json::object()}}, "sliding_attention"},
  };
  for (const BadMember& bad : cases) CheckBad(bad);
}

TEST_F(HfMemberTest, NamesFileAndKeyOfABadMemberOfExperts) {
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
      {"gpt_oss", "num_local_experts", nullptr, "num_local_experts is missing"},
      {"gpt_oss", "num_experts_per_tok", 7, "experts per token is 7; it must be between 1 and 6"},
      {"gpt_oss",
       "num_experts_per_tok",
       "x",
       "num_experts_per_tok is \"x\"; it must be an integer"},
      {"gpt_oss", "swiglu_limit", 0, "swiglu_limit is 0; it must be between 1e-06"},
      {"gpt_oss", "swiglu_limit", "x", "swiglu_limit is string; it must be a number"},
      {"gpt_oss", "swiglu_alpha", -1, "swiglu_alpha is -1; it must be between 1e-06"},
      {"gpt_oss", "swiglu_alpha", Json::array(), "swiglu_alpha is array; it must be a number"},
      {"gpt_oss", "attention_bias", 1, "attention_bias is number; it must be a boolean"},
      {"gpt_oss", "sliding_window", nullptr, "but no sliding_window is set"},
      {"gpt_oss", "hidden_act", "gelu", "hidden_act is gelu; only silu is supported"},
      {"gpt_oss",
       "rope_scaling",
       {{"rope_type", "yarn"}, {"factor", 32}, {"truncate", 1}},
       "truncate is number; it must be a boolean"},
      {"gpt_oss",
       "quantization_config",
       {{"quant_method", "quark"}},
       "quant_method is quark; supported"},
      {"minimax_m2", "rotary_dim", 34, "rotary dimension is 34; it must be between 2 and 32"},
      {"minimax_m2", "rotary_dim", 15, "rotary dimension 15 must be even"},
      {"minimax_m2", "scoring_func", "softmax", "scoring_func is softmax"},
      {"minimax_m2", "use_routing_bias", false, "use_routing_bias false"},
      {"minimax_m2", "use_qk_norm", false, "use_qk_norm false"},
      {"minimax_m2", "qk_norm_type", "per_head", "qk_norm_type is per_head"},
  };
  for (const BadMember& bad : cases) CheckBad(bad);
}

TEST_F(HfMemberTest, NamesFileAndKeyOfABadMemberOfErnieAndHunyuan) {
  const std::vector<BadMember> cases = {
      {"ernie4_5_moe", "moe_num_experts", nullptr, "moe_num_experts is missing"},
      {"ernie4_5_moe", "moe_num_experts", 1025, "moe_num_experts is 1025; it must be between 1"},
      {"ernie4_5_moe", "moe_k", 9, "experts per token is 9; it must be between 1 and 8"},
      {"ernie4_5_moe", "moe_k", "x", "moe_k is \"x\"; it must be an integer"},
      {"ernie4_5_moe", "moe_intermediate_size", {24, 24}, "moe_intermediate_size is [24,24]"},
      {"ernie4_5_moe", "moe_num_shared_experts", -1, "moe_num_shared_experts is -1"},
      {"ernie4_5_moe", "moe_norm_min", 2, "moe_norm_min is 2; it must be between 0 and 1"},
      {"ernie4_5_moe", "moe_layer_start_index", -1, "moe_layer_start_index is -1"},
      {"ernie4_5_moe", "moe_layer_end_index", -2, "moe_layer_end_index is -2"},
      {"ernie4_5_moe", "moe_layer_interval", 0, "moe_layer_interval is 0; it must be between 1"},
      {"ernie4_5_moe", "use_bias", 1, "use_bias is number; it must be a boolean"},
      {"hunyuan_v1_moe", "num_experts", nullptr, "num_experts is missing"},
      {"hunyuan_v1_moe", "num_experts", {8, 1025, 8}, "num_experts has 1025; it must be between 1"},
      {"hunyuan_v1_moe", "num_experts", {8, 8, 4}, "num_experts has 8 and 4; only equal numbers"},
      {"hunyuan_v1_moe", "num_experts", Json::array(), "num_experts is []; it must be an integer"},
      {"hunyuan_v1_moe", "moe_topk", nullptr, "moe_topk is missing"},
      {"hunyuan_v1_moe", "moe_topk", 9, "experts per token is 9; it must be between 1 and 8"},
      {"hunyuan_v1_moe", "moe_topk", {2, 1, 2}, "moe_topk has 2 and 1; only equal numbers"},
      {"hunyuan_v1_moe", "moe_topk", "x", "moe_topk"},
      {"hunyuan_v1_moe",
       "rope_scaling",
       {{"type", "dynamic"}, {"alpha", 0.5}},
       "rope_scaling: alpha is 0.5; it must be between 1 and"},
  };
  for (const BadMember& bad : cases) CheckBad(bad);
}

TEST_F(HfMemberTest, TheGroupsOfATokenHaveItsExperts) {
  Json config = Tiny("dots1");
  config["n_group"] = 4;
  config["topk_group"] = 1;
  EXPECT_THAT(Message(Read(config).status()),
              HasSubstr("experts per token 3 are more than 1 of 4 groups of 8 experts have"));
}

}  // namespace
}  // namespace baton
