#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/model/cache_layers.h"
#include "common/model/describe_model.h"
#include "common/model/op_variants.h"
#include "common/model/open_model.h"
#include "common/model/rank_plan.h"
#include "tests/unit/model/hf_family_fixture.h"

// The configurations of models with Mamba layers or Kimi delta attention.
namespace baton {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Json = nlohmann::json;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct BadMember {
  std::string family;
  std::string key;
  Json value;
  std::string error;
};

class RecurrentConfigTest : public HfFamilyTest {
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
  static std::string DescriptionOf(const std::string& family) {
    const auto model = OpenModel(std::string(BATON_TEST_DATA) + "/tiny/" + family);
    EXPECT_TRUE(model.ok()) << Message(model.status());
    std::string text;
    for (const DescriptionLine& line : DescribeModel(*model).lines) {
      text += line.label + ": " + line.value + "\n";
    }
    return text;
  }
};

TEST_F(RecurrentConfigTest, AbsentKeysOfNemotronHHaveItsDefaults) {
  const ModelSpec spec = Without("nemotron_h",
                                 {"mamba_num_heads",
                                  "mamba_head_dim",
                                  "n_groups",
                                  "ssm_state_size",
                                  "conv_kernel",
                                  "use_conv_bias",
                                  "time_step_limit",
                                  "head_dim",
                                  "layer_norm_epsilon",
                                  "mlp_hidden_act",
                                  "norm_topk_prob",
                                  "n_group",
                                  "topk_group",
                                  "routed_scaling_factor"});
  EXPECT_EQ(spec.recurrent.shape, (RecurrentShape{RecurrentRule::kStateSpace, 8, 128, 128, 64, 4}));
  EXPECT_TRUE(spec.recurrent.convolution_bias && spec.recurrent.norm);
  EXPECT_EQ(spec.recurrent.min_time, 0);
  EXPECT_EQ(spec.recurrent.max_time, kInfinity);
  EXPECT_EQ(spec.head_dim, 128);
  EXPECT_EQ(spec.norm_epsilon, 1e-5f);
  EXPECT_EQ(spec.feed_forward, FeedForward::kSquaredRelu);
  EXPECT_TRUE(spec.moe.normalize && spec.moe.selection_bias && spec.moe.gate.ungated);
  EXPECT_EQ(spec.moe.scale, 1);
  EXPECT_EQ(spec.moe.shared_intermediate, 48);
}

TEST_F(RecurrentConfigTest, ALayerOfNemotronHIsOneBlock) {
  Json config = Tiny("nemotron_h");
  config["hybrid_override_pattern"] = "M-*EM";
  const ModelSpec spec = Good(config);
  EXPECT_TRUE(spec.layers[0].state && !spec.layers[0].attention && !spec.layers[0].feed_forward);
  EXPECT_TRUE(spec.layers[1].feed_forward && !spec.layers[1].moe && !spec.layers[1].mixes());
  EXPECT_TRUE(spec.layers[2].attention && !spec.layers[2].rotary && !spec.layers[2].state);
  EXPECT_TRUE(spec.layers[3].moe && spec.layers[3].feed_forward && !spec.layers[3].mixes());
  EXPECT_EQ(CacheLayersOf(spec).count(), 3);
  EXPECT_THAT(CacheLayersOf(spec).state.layers, ElementsAre(0, 2));
  EXPECT_EQ(CacheLayersBefore(spec, 4), 2);
  config["hybrid_override_pattern"] = "M-*-M";
  config.erase("n_routed_experts");
  EXPECT_EQ(Good(config).moe.experts, 0) << "no layer has experts";
}

TEST_F(RecurrentConfigTest, AbsentKeysOfFalconH1HaveItsDefaults) {
  const ModelSpec spec = Without("falcon_h1",
                                 {"mamba_n_groups",
                                  "mamba_conv_bias",
                                  "mamba_rms_norm",
                                  "attention_in_multiplier",
                                  "attention_out_multiplier",
                                  "key_multiplier",
                                  "embedding_multiplier",
                                  "lm_head_multiplier",
                                  "mlp_multipliers",
                                  "ssm_in_multiplier",
                                  "ssm_out_multiplier",
                                  "ssm_multipliers",
                                  "rope_theta",
                                  "rms_norm_eps"});
  EXPECT_EQ(spec.rope.theta, 1e5);
  EXPECT_EQ(spec.norm_epsilon, 1e-5f);
  EXPECT_EQ(spec.attention_scale, 0.25f) << "1 / √16";
  EXPECT_FALSE(spec.recurrent.norm);
  for (const float scale : {spec.embedding_scale,
                            spec.logit_scale,
                            spec.attention_input_scale,
                            spec.attention_output_scale,
                            spec.gate_scale,
                            spec.feed_forward_scale,
                            spec.recurrent.input_scale,
                            spec.recurrent.time_scale,
                            spec.recurrent.output_scale}) {
    EXPECT_EQ(scale, 1);
  }
  EXPECT_TRUE(spec.layers[2].attention && spec.layers[2].state && spec.layers[2].feed_forward);
  EXPECT_THAT(VariantsOf(spec), Not(Contains(OpVariant::kScaledGate)));
  // One group of B and C for two KV heads.
  EXPECT_EQ(spec.recurrent.shape.key_heads, 2);
  EXPECT_EQ(spec.recurrent.shape.key_copies, 2);
  EXPECT_EQ(spec.recurrent.shape.key_numbers(), 16);
}

TEST_F(RecurrentConfigTest, KvAndStateOfALayerAreTwoCacheLayers) {
  const ModelSpec spec = Good(Tiny("falcon_h1"));
  const CacheLayers layers = CacheLayersOf(spec);
  EXPECT_EQ(layers.count(), 6);
  EXPECT_THAT(layers.state.layers, ElementsAre(1, 3, 5));
  const std::vector<KvPlane> planes = {{.name = "state", .heads = 2, .dim = 3 * 16 * 16},
                                       {.name = "conv", .heads = 2, .dim = 4 * (2 * 16 + 3 * 16)}};
  EXPECT_EQ(layers.state.planes, planes);
  EXPECT_EQ(spec.KvBytesPerToken(2), 3u * 2 * 2 * 16 * 2);
  EXPECT_EQ(spec.StateBytes(), 3u * 2 * (768 + 320) * 4);
  const auto plan = MakeRankPlan(spec, RankPlace::Of(2, 3, 3), ExchangeMode::kGather);
  ASSERT_TRUE(plan.ok()) << Message(plan.status());
  EXPECT_EQ(plan->kv_shard, (KvShard{2, 2, 1, 1})) << "of the second of three stages";
}

TEST_F(RecurrentConfigTest, StatesAloneHaveBlocksOfTokensThatHoldNothing) {
  const ModelSpec spec = Good(Tiny("mamba2"));
  EXPECT_EQ(spec.KvBytesPerToken(2), 0u);
  const CacheLayers layers = CacheLayersOf(spec);
  const KvLayout layout = DenseLayout({.layers = layers.count(),
                                       .kv_heads = spec.kv_heads,
                                       .head_dim = spec.head_dim,
                                       .windows = layers.windows,
                                       .state = layers.state});
  ASSERT_TRUE(layout.Validate().ok()) << Message(layout.Validate());
  EXPECT_EQ(layout.block_groups(), 1);
  EXPECT_THAT(layout.groups[0].layers, IsEmpty());
  const KvShard whole = WholeModel(layout);
  EXPECT_EQ(ShardStateBytes(layout, whole), spec.StateBytes());
  // 57,344 bytes in blocks of at most 16 KiB.
  EXPECT_EQ(spec.StateBytes(), 4u * (8 * 16 * 16 + 4 * 192) * 4);
  EXPECT_EQ(StateBlocks(layout, std::vector{whole}), 3);
  EXPECT_GE(MaxStateBlocks(layout), 3);
  for (const KvShard& shard : {KvShard{0, 4, 0, 1}, KvShard{2, 2, 1, 1}}) {
    EXPECT_LE(StateBlocks(layout, std::vector{shard}), 3);
  }
  EXPECT_THAT(DescriptionOf("mamba2"), Not(HasSubstr("attention")));
  EXPECT_THAT(DescriptionOf("mamba2"), HasSubstr("feed-forward: none\n"));
}

TEST_F(RecurrentConfigTest, InfinityIsANumberInEachForm) {
  const std::string text = Tiny("mamba2").dump();
  const std::string object = R"({"__float__":"Infinity"})";
  ASSERT_THAT(text, HasSubstr(object));
  std::string bare = text;
  bare.replace(bare.find(object), object.size(), "Infinity");
  // Not a number in a string.
  bare.insert(bare.find('{') + 1, R"("name": "In\"finity Infinity",)");
  folder_.Write("config.json", bare);
  const auto spec = SpecFromHfDirectory(folder_.path());
  ASSERT_TRUE(spec.ok()) << Message(spec.status());
  EXPECT_EQ(spec->recurrent.max_time, kInfinity);
  Json config = Tiny("mamba2");
  config["time_step_limit"] = {0.25, 2.5};
  EXPECT_EQ(Good(config).recurrent.min_time, 0.25f);
  EXPECT_EQ(Good(config).recurrent.max_time, 2.5f);
}

TEST_F(RecurrentConfigTest, AbsentKeysOfMamba2AndJambaHaveTheirDefaults) {
  Json config = Tiny("mamba2");
  for (const char* key : {"num_heads", "head_dim", "n_groups", "state_size", "conv_kernel"}) {
    config.erase(key);
  }
  config["hidden_size"] = 4096;
  EXPECT_EQ(Good(config).recurrent.shape,
            (RecurrentShape{RecurrentRule::kStateSpace, 8, 128, 128, 64, 4}));
  const ModelSpec spec = Without("jamba",
                                 {"mamba_d_state",
                                  "mamba_d_conv",
                                  "mamba_dt_rank",
                                  "mamba_expand",
                                  "attn_layer_period",
                                  "attn_layer_offset",
                                  "expert_layer_period",
                                  "expert_layer_offset"});
  EXPECT_EQ(spec.recurrent.shape, (RecurrentShape{RecurrentRule::kSelectiveScan, 2, 2, 16, 64, 4}));
  EXPECT_EQ(spec.recurrent.latent_rank, 4) << "a sixteenth of 64";
  EXPECT_EQ(spec.attention_layers(), 0) << "the first is layer 4";
  EXPECT_TRUE(spec.layers[1].moe && !spec.layers[2].moe);
  EXPECT_FALSE(spec.moe.normalize);
  config = Tiny("jamba");
  config["num_experts"] = 1;
  EXPECT_FALSE(Good(config).layers[1].moe);
  config["mamba_dt_rank"] = "auto";
  EXPECT_EQ(Good(config).recurrent.latent_rank, 4);
}

TEST_F(RecurrentConfigTest, KimiListsItsLayersFromOneOn) {
  Json config = Tiny("kimi_linear");
  config["linear_attn_config"]["full_attn_layers"] = {1, 4};
  config["linear_attn_config"]["kda_layers"] = {2, 3};
  const ModelSpec spec = Good(config);
  EXPECT_TRUE(spec.layers[0].attention && spec.layers[3].attention);
  EXPECT_TRUE(spec.layers[1].state && spec.layers[2].state && !spec.layers[1].attention);
  EXPECT_TRUE(spec.latent_attention() && !spec.layers[0].rotary);
  EXPECT_FALSE(spec.layers[0].moe);
  EXPECT_TRUE(spec.layers[1].moe);
  EXPECT_EQ(spec.moe.scale, 2.4f);
  EXPECT_EQ(spec.moe.shared_intermediate, 24);
  // Ranks divide the heads of the states; each has the whole latent.
  const auto plan = MakeRankPlan(spec, RankPlace::Of(2, 1, 1), ExchangeMode::kGather);
  ASSERT_TRUE(plan.ok()) << Message(plan.status());
  EXPECT_EQ(plan->kv_shard, (KvShard{0, 4, 2, 2}));
}

TEST_F(RecurrentConfigTest, NamesFileAndKeyOfABadMemberOfNemotronH) {
  const std::vector<BadMember> cases = {
      {"nemotron_h",
       "hybrid_override_pattern",
       "M-M*",
       "the pattern M-M* has 4 layers, num_hidden_layers is 5"},
      {"nemotron_h",
       "hybrid_override_pattern",
       "M-X*E",
       "hybrid_override_pattern has X; M, *, - and E are"},
      {"nemotron_h",
       "hybrid_override_pattern",
       3,
       "hybrid_override_pattern is number; it must be a string"},
      {"nemotron_h", "hybrid_override_pattern", nullptr, "layers_block_type is missing"},
      {"nemotron_h", "mamba_num_heads", 7, "number of value heads of Mamba 2 7 must be a multiple"},
      {"nemotron_h", "mamba_num_heads", 0, "mamba_num_heads is 0; it must be between 1 and 4096"},
      {"nemotron_h",
       "n_groups",
       1,
       "number of key heads of Mamba 2 1 must be a multiple of the number of KV heads 2"},
      {"nemotron_h",
       "ssm_state_size",
       2000,
       "ssm_state_size is 2000; it must be between 1 and 1024"},
      {"nemotron_h", "conv_kernel", 65, "conv_kernel is 65; it must be between 1 and 64"},
      {"nemotron_h", "time_step_limit", {1.0}, "time_step_limit has 1 numbers; it must have 2"},
      {"nemotron_h",
       "time_step_limit",
       {2.0, 1.0},
       "is at least 2 and at most 1; the limits must ascend"},
      {"nemotron_h", "time_step_limit", "x", "time_step_limit must be a list of numbers"},
      {"nemotron_h", "use_bias", true, "use_bias is true; only false is supported"},
      {"nemotron_h", "mamba_proj_bias", true, "mamba_proj_bias is true; only false is supported"},
      {"nemotron_h", "mlp_bias", true, "mlp_bias is true; only false is supported"},
      {"nemotron_h", "mlp_hidden_act", "silu", "mlp_hidden_act is silu; only relu2 is supported"},
      {"nemotron_h",
       "mamba_hidden_act",
       "gelu",
       "mamba_hidden_act is gelu; only silu is supported"},
      {"nemotron_h", "sliding_window", 64, "sliding_window is set; only null is supported"},
      {"nemotron_h", "moe_latent_size", 8, "moe_latent_size is set; only null is supported"},
      {"nemotron_h",
       "moe_intermediate_size",
       "x",
       "moe_intermediate_size is \"x\"; it must be an integer"},
      {"nemotron_h", "n_routed_experts", nullptr, "n_routed_experts is missing"}};
  for (const BadMember& bad : cases) CheckBad(bad);
}

TEST_F(RecurrentConfigTest, NamesFileAndKeyOfABadMemberOfTheOtherMambas) {
  const std::vector<BadMember> cases = {
      {"falcon_h1", "mamba_d_ssm", 95, "mamba_d_ssm is not mamba_n_heads 6 times mamba_d_head 16"},
      {"falcon_h1", "mamba_n_heads", 5, "mamba_d_ssm is not mamba_n_heads 5 times mamba_d_head 16"},
      {"falcon_h1", "mamba_rms_norm", 1, "mamba_rms_norm is number; it must be a boolean"},
      {"falcon_h1", "ssm_multipliers", {1, 1}, "ssm_multipliers has 2 numbers; it must have 5"},
      {"falcon_h1",
       "ssm_multipliers",
       {1, 1, 0, 1, 1},
       "ssm_multipliers has 0; it must be between 1e-06"},
      {"falcon_h1", "mlp_multipliers", 2, "mlp_multipliers must be a list of numbers"},
      {"falcon_h1", "key_multiplier", 0, "key_multiplier is 0; it must be between 1e-06"},
      {"falcon_h1", "ssm_in_multiplier", "x", "ssm_in_multiplier is string; it must be a number"},
      {"falcon_h1", "mlp_bias", true, "with a scaled gate, must have no biases"},
      {"falcon_h1", "projectors_bias", true, "projectors_bias is true; only false is supported"},
      {"mamba2", "expand", 3, "num_heads 8 times head_dim 16 is not expand times hidden_size 64"},
      {"mamba2", "hidden_size", nullptr, "hidden_size is missing"},
      {"mamba2", "use_bias", true, "use_bias is true; only false is supported"},
      {"mamba2", "hidden_act", "gelu", "hidden_act is gelu; only silu is supported"},
      {"jamba", "mamba_expand", 0, "mamba_expand is 0; it must be between 1 and 64"},
      {"jamba", "mamba_dt_rank", "x", "mamba_dt_rank is \"x\"; it must be an integer"},
      {"jamba", "attn_layer_period", 0, "attn_layer_period is 0; it must be between 1"},
      {"jamba", "num_experts", nullptr, "num_experts is missing"},
      {"jamba", "mamba_proj_bias", true, "mamba_proj_bias is true; only false is supported"},
      {"jamba", "sliding_window", 5, "sliding_window is set; only null is supported"}};
  for (const BadMember& bad : cases) CheckBad(bad);
}

TEST_F(RecurrentConfigTest, NamesFileAndKeyOfABadMemberOfKimiLinear) {
  Json twice = Tiny("kimi_linear")["linear_attn_config"];
  twice["full_attn_layers"] = {3, 4};
  Json missing = twice;
  missing["kda_layers"] = {1};
  Json outside = twice;
  outside["kda_layers"] = {5};
  const std::vector<BadMember> cases = {
      {"kimi_linear", "linear_attn_config", twice, "layer 4 is listed twice"},
      {"kimi_linear",
       "linear_attn_config",
       missing,
       "layer 2 is in neither full_attn_layers nor kda_layers"},
      {"kimi_linear",
       "linear_attn_config",
       outside,
       "kda_layers has 5; it must be between 1 and 4"},
      {"kimi_linear",
       "linear_attn_config",
       3,
       "linear_attn_config is number; it must be an object"},
      {"kimi_linear", "linear_attn_config", nullptr, "layer_types is missing"},
      {"kimi_linear", "mla_use_nope", false, "mla_use_nope is false; only true is supported"},
      {"kimi_linear",
       "moe_router_activation_func",
       "softmax",
       "moe_router_activation_func is softmax"},
      {"kimi_linear", "model_max_length", nullptr, "model_max_length is missing"},
      {"kimi_linear", "mlp_layer_types", {"dense"}, "mlp_layer_types has 1 entries for 4 layers"},
      {"kimi_linear",
       "num_experts_per_token",
       9,
       "experts per token is 9; it must be between 1 and 8"}};
  for (const BadMember& bad : cases) CheckBad(bad);
}

TEST_F(RecurrentConfigTest, RefusesOtherKindsOfLayersAndNorms) {
  const Json sliding = {"linear_attention", "sliding_attention", "mlp", "moe", "mlp"};
  Json config = Tiny("nemotron_h");
  config.erase("hybrid_override_pattern");
  config["layers_block_type"] = sliding;
  EXPECT_THAT(Message(Read(config).status()),
              HasSubstr("layers_block_type has sliding_attention; linear_attention"));
  config = Tiny("falcon_h1");
  config["mamba_rms_norm"] = config["mamba_norm_before_gate"] = true;
  EXPECT_THAT(Message(Read(config).status()),
              HasSubstr("mamba_norm_before_gate is true; with mamba_rms_norm only false"));
}

TEST_F(RecurrentConfigTest, RanksThatWouldHaveNoPlaceAreRefused) {
  const ModelSpec nemotron = Good(Tiny("nemotron_h"));
  const auto stages = MakeRankPlan(nemotron, RankPlace::Of(1, 4, 0), ExchangeMode::kGather);
  EXPECT_THAT(Message(stages.status()),
              HasSubstr("pipeline_parallel is 4; the model has 3 layers with attention or a state, "
                        "so it must be between 1 and 3"));
  // The last layer, which has experts, stays with attention before it.
  const auto last = MakeRankPlan(nemotron, RankPlace::Of(1, 3, 2), ExchangeMode::kGather);
  ASSERT_TRUE(last.ok()) << Message(last.status());
  EXPECT_EQ(last->layers.begin, 3);
  EXPECT_EQ(last->kv_shard, (KvShard{2, 1, 0, 2}));
  for (const char* family : {"nemotron_h", "falcon_h1", "mamba2", "jamba"}) {
    const auto plan =
        MakeRankPlan(Good(Tiny(family)), RankPlace::Of(4, 1, 0), ExchangeMode::kGather);
    EXPECT_THAT(Message(plan.status()), HasSubstr("tensor_parallel is 4")) << family;
    EXPECT_THAT(Message(plan.status()), HasSubstr("must be one of 1, 2")) << family;
  }
}

TEST_F(RecurrentConfigTest, BackendsLearnWhatTheModelsNeed) {
  EXPECT_THAT(VariantsOf(Good(Tiny("nemotron_h"))),
              testing::IsSupersetOf(
                  {OpVariant::kStateSpace, OpVariant::kSquaredRelu, OpVariant::kUngatedExperts}));
  EXPECT_THAT(
      VariantsOf(Good(Tiny("falcon_h1"))),
      testing::IsSupersetOf({OpVariant::kStateSpace, OpVariant::kScale, OpVariant::kScaledGate}));
  EXPECT_THAT(VariantsOf(Good(Tiny("jamba"))), Contains(OpVariant::kSelectiveScan));
  EXPECT_THAT(VariantsOf(Good(Tiny("kimi_linear"))),
              testing::IsSupersetOf({OpVariant::kChannelDelta, OpVariant::kLatentAttention}));
  EXPECT_EQ(Describe(OpVariant::kStateSpace), "Mamba 2 layers");
  EXPECT_EQ(Describe(OpVariant::kSelectiveScan), "Mamba layers");
  EXPECT_EQ(Describe(OpVariant::kChannelDelta), "Kimi delta attention");
  EXPECT_EQ(Describe(OpVariant::kUngatedExperts), "experts without a gate");
  EXPECT_THAT(DescriptionOf("falcon_h1"),
              HasSubstr("Mamba 2: in 3 layers, 2 key heads of 16, 6 value heads of 16, convolution "
                        "of 4\n"));
  EXPECT_THAT(DescriptionOf("nemotron_h"), HasSubstr("squared relu\n"));
}

// Each field is a different model.
TEST_F(RecurrentConfigTest, TheDescriptionForFingerprintsHasEachField) {
  const ModelSpec spec = Good(Tiny("falcon_h1"));
  const std::vector<std::function<void(ModelSpec&)>> changes = {
      [](ModelSpec& s) { s.recurrent.shape.rule = RecurrentRule::kChannelDelta; },
      [](ModelSpec& s) { s.recurrent.shape.key_copies = 2; },
      [](ModelSpec& s) { s.recurrent.tiled_keys = 2; },
      [](ModelSpec& s) { s.recurrent.convolution_bias = false; },
      [](ModelSpec& s) { s.recurrent.norm = true; },
      [](ModelSpec& s) { s.recurrent.min_time = 0.5f; },
      [](ModelSpec& s) { s.recurrent.max_time = 0.5f; },
      [](ModelSpec& s) { s.recurrent.latent_rank = 3; },
      [](ModelSpec& s) { s.recurrent.input_scale = 2; },
      [](ModelSpec& s) { s.recurrent.gate_scale = 2; },
      [](ModelSpec& s) { s.recurrent.value_scale = 2; },
      [](ModelSpec& s) { s.recurrent.key_scale = 2; },
      [](ModelSpec& s) { s.recurrent.query_scale = 2; },
      [](ModelSpec& s) { s.recurrent.time_scale = 2; },
      [](ModelSpec& s) { s.recurrent.output_scale = 2; },
      [](ModelSpec& s) { s.attention_input_scale = 2; },
      [](ModelSpec& s) { s.attention_output_scale = 2; },
      [](ModelSpec& s) { s.feed_forward_scale = 2; },
      [](ModelSpec& s) { s.gate_scale = 2; },
      [](ModelSpec& s) { s.layers[1].attention = false; },
      [](ModelSpec& s) { s.layers[1].state = false; },
      [](ModelSpec& s) { s.layers[1].feed_forward = false; }};
  for (size_t i = 0; i < changes.size(); ++i) {
    ModelSpec other = spec;
    changes[i](other);
    EXPECT_NE(other.ToString(), spec.ToString()) << "change " << i;
  }
}

}  // namespace
}  // namespace baton
