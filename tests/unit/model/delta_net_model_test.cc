#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/model/cache_layers.h"
#include "common/model/describe_model.h"
#include "common/model/op_variants.h"
#include "common/model/rank_plan.h"
#include "tests/unit/model/recurrent_fixture.h"

// Models with gated delta nets: their configurations, weights, states and ranks. tiny_golden_test
// compares them with transformers.
namespace baton {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kFamily[] = "qwen3_next";

class DeltaNetModel : public RecurrentModelTest {
 protected:
  DeltaNetModel() : RecurrentModelTest(kFamily) {}
};

TEST_F(DeltaNetModel, AbsentKeysHaveTheFamilysDefaults) {
  const ModelSpec spec = Without(kFamily,
                                 {"linear_num_key_heads",
                                  "linear_num_value_heads",
                                  "linear_key_head_dim",
                                  "linear_value_head_dim",
                                  "linear_conv_kernel_dim",
                                  "full_attention_interval",
                                  "partial_rotary_factor",
                                  "rope_theta",
                                  "rms_norm_eps",
                                  "head_dim",
                                  "norm_topk_prob",
                                  "decoder_sparse_step",
                                  "mlp_only_layers",
                                  "shared_expert_intermediate_size"});
  EXPECT_EQ(
      spec.recurrent.shape,
      (RecurrentShape{
          .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .kernel = 4}));
  EXPECT_EQ(spec.head_dim, 256);
  EXPECT_EQ(spec.rope.rotary_dim, 64);
  EXPECT_EQ(spec.rope.theta, 10000);
  EXPECT_EQ(spec.norm_epsilon, 1e-6f);
  EXPECT_EQ(spec.state_layers(), 3);
  EXPECT_FALSE(spec.layers[3].state);
  EXPECT_TRUE(spec.attention_gate && spec.moe.normalize && spec.moe.shared_gate);
  EXPECT_EQ(spec.moe.shared_intermediate, 512);
  EXPECT_TRUE(spec.layers[0].moe);
}

TEST_F(DeltaNetModel, TheConfigurationSaysWhichLayersHaveADeltaNetAndWhichHaveExperts) {
  Json config = Tiny(kFamily);
  config["full_attention_interval"] = 2;
  ModelSpec spec = Good(config);
  EXPECT_TRUE(spec.layers[0].state && spec.layers[2].state);
  EXPECT_FALSE(spec.layers[1].state || spec.layers[3].state);
  config["layer_types"] = {
      "full_attention", "linear_attention", "linear_attention", "full_attention"};
  config["mlp_only_layers"] = {1};
  spec = Good(config);
  EXPECT_TRUE(spec.layers[1].state && spec.layers[2].state);
  EXPECT_FALSE(spec.layers[0].state || spec.layers[3].state);
  EXPECT_FALSE(spec.layers[1].moe);
  config["decoder_sparse_step"] = 2;
  spec = Good(config);
  EXPECT_TRUE(spec.layers[3].moe);
  EXPECT_FALSE(spec.layers[0].moe || spec.layers[1].moe || spec.layers[2].moe);
}

TEST_F(DeltaNetModel, NamesFileAndKeyOfABadMember) {
  const Json three = {"linear_attention", "linear_attention", "full_attention"};
  const Json sliding = {
      "linear_attention", "sliding_attention", "linear_attention", "full_attention"};
  struct Bad {
    std::string key;
    Json value;
    std::string error;
  };
  const std::vector<Bad> cases = {
      {"linear_num_key_heads", 0, "linear_num_key_heads is 0; it must be between 1 and 4096"},
      {"linear_num_key_heads", "x", "linear_num_key_heads is \"x\"; it must be an integer"},
      {"linear_num_key_heads",
       1,
       "number of key heads of gated delta nets 1 must be a multiple of the number of KV heads 2"},
      {"linear_num_value_heads",
       3,
       "number of value heads of gated delta nets 3 must be a multiple of the number of key heads "
       "2"},
      {"linear_key_head_dim", 2000, "linear_key_head_dim is 2000; it must be between 1 and 1024"},
      {"linear_value_head_dim", -1, "linear_value_head_dim is -1; it must be between 1"},
      {"linear_conv_kernel_dim", 65, "linear_conv_kernel_dim is 65; it must be between 1 and 64"},
      {"full_attention_interval", 0, "full_attention_interval is 0; it must be between 1"},
      {"layer_types", three, "layer_types has 3 entries for 4 layers"},
      {"layer_types", sliding, "full_attention and linear_attention are supported"},
      {"attention_bias", true, "attention_bias is true; only false is supported"},
      {"hidden_act", "gelu", "hidden_act is gelu; only silu is supported"},
      {"quantization_config", {{"quant_method", "quark"}}, "quant_method is quark; supported"},
  };
  for (const Bad& bad : cases) {
    const std::string error = ErrorWith(bad.key, bad.value);
    EXPECT_THAT(error, HasSubstr(bad.error)) << bad.key;
    EXPECT_THAT(error, HasSubstr("config.json: ")) << bad.key;
  }
}

TEST_F(DeltaNetModel, AStateMustFitIntoThePlanesOfTheCache) {
  ModelSpec spec = Good(Tiny(kFamily));
  spec.recurrent.shape.key_dim = spec.recurrent.shape.value_dim = 1024;
  spec.recurrent.shape.value_heads = 64;
  EXPECT_THAT(Message(spec.Validate("f")),
              HasSubstr("numbers of the state of a KV head is 33554432; it must be between 1 and "
                        "16777216"));
  spec = Good(Tiny(kFamily));
  spec.layers[3].window = 8;
  EXPECT_THAT(Message(spec.Validate("f")), HasSubstr("beside gated delta nets there must be none"));
}

// Weights of 16 bits are those of 32 bits with the same values.
TEST_F(DeltaNetModel, WeightsOfEachTypeAreExact) {
  const auto dtypes = {DType::kBF16, DType::kF16};
  for (const DType dtype : dtypes) {
    SCOPED_TRACE(Name(dtype));
    HeldTensors narrow = TensorsIn(Path());
    HeldTensors wide = narrow;
    for (auto& [name, tensor] : narrow) {
      std::vector<std::byte>& of_wide = wide.at(name).bytes;
      std::vector<std::byte> bytes(tensor.bytes.size() / 2);
      for (size_t i = 0; i < tensor.bytes.size() / 4; ++i) {
        // The numbers keep 8 significant bits, which both types have, and the exponents of f16.
        uint32_t bits = 0;
        std::memcpy(&bits, tensor.bytes.data() + 4 * i, 4);
        const bool small = (bits >> 23 & 0xFF) < 127 - 14;
        bits = small ? 0 : bits & 0xFFFF0000u;
        std::memcpy(of_wide.data() + 4 * i, &bits, 4);
        const auto bf16 = static_cast<uint16_t>(bits >> 16);
        const auto f16 = static_cast<uint16_t>(
            small ? 0 : (bits >> 16 & 0x8000) | (((bits >> 13) - (112u << 10)) & 0x7FFF));
        std::memcpy(bytes.data() + 2 * i, dtype == DType::kBF16 ? &bf16 : &f16, 2);
      }
      tensor.dtype = dtype;
      tensor.bytes = bytes;
    }
    const std::vector<TokenId> tokens = Tokens(12);
    const OpenedModel of_wide = OpenWith(wide);
    const auto want = RunnerOf(of_wide)->RunAll(0, tokens, 12);
    const OpenedModel of_narrow = OpenWith(narrow);
    EXPECT_EQ(RunnerOf(of_narrow)->RunAll(0, tokens, 12), want);
  }
}

TEST_F(DeltaNetModel, RanksDivideKvHeadsAndTheHeadsOfDeltaNetsWithThem) {
  const ModelSpec spec = Good(Tiny(kFamily));
  const auto refused = MakeRankPlan(spec, RankPlace::Of(4, 1, 0), ExchangeMode::kGather);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(refused.status()),
              HasSubstr("tensor_parallel is 4; for a model with 4 heads and 2 KV heads, 8 experts, "
                        "a shared expert of 24 it must be one of 1, 2"));
  const auto plan = MakeRankPlan(spec, RankPlace::Of(2, 1, 1), ExchangeMode::kGather);
  ASSERT_TRUE(plan.ok()) << Message(plan.status());
  EXPECT_EQ(plan->kv_shard.first_head, 1);
  EXPECT_EQ(plan->kv_shard.head_count, 1);
  EXPECT_THAT(plan->ends.recurrent, ElementsAre(2 * 16, 4 * 16));
}

// A layer with a delta net reads other weights than one with attention.
TEST_F(DeltaNetModel, StagesCountTheWeightsOfDeltaNets) {
  const ModelSpec spec = Good(Tiny(kFamily));
  const LayerCosts costs = DecodeCosts(spec);
  const double experts = 3.0 * 64 * (3 * 16 + 24);
  EXPECT_EQ(costs.layers[0], 64.0 * (192 + 8 + 64) + experts);
  EXPECT_EQ(costs.layers[3], 64.0 * 32 * (3 * 4 + 2 * 2) + experts);
}

TEST_F(DeltaNetModel, TellsWhatAStateTakesAndWhatABackendNeeds) {
  const ModelSpec spec = Good(Tiny(kFamily));
  EXPECT_EQ(spec.KvBytesPerToken(2), 2u * 2 * 32 * 2) << "of one layer";
  EXPECT_EQ(spec.StateBytes(), 3u * (4 * 16 * 16 + 4 * 128) * 4);
  const StateLayers state = CacheLayersOf(spec).state;
  EXPECT_THAT(state.layers, ElementsAre(0, 1, 2));
  const std::vector<KvPlane> planes = {{.name = "state", .heads = 2, .dim = 512},
                                       {.name = "conv", .heads = 2, .dim = 256}};
  EXPECT_EQ(state.planes, planes);
  EXPECT_TRUE(CacheLayersOf(ModelSpec()).state.planes.empty());
  EXPECT_THAT(VariantsOf(spec), Contains(OpVariant::kDeltaNet));
  EXPECT_THAT(VariantsOf(spec), Contains(OpVariant::kAttentionGate));
  EXPECT_EQ(Describe(OpVariant::kDeltaNet), "gated delta nets");
  EXPECT_EQ(Describe(OpVariant::kAttentionGate), "a gate of attention");
  std::string text;
  for (const DescriptionLine& line : DescribeModel(Open()).lines) {
    text += line.label + ": " + line.value + "\n";
  }
  EXPECT_THAT(text,
              HasSubstr("attention: 4 heads, 2 KV heads, head dimension 32, q and k normalised, "
                        "output gate, in 1 layers\n"));
  EXPECT_THAT(text,
              HasSubstr("gated delta nets: in 3 layers, 2 key heads of 16, 4 value heads of 16, "
                        "convolution of 4\n"));
  EXPECT_THAT(text, HasSubstr("state per sequence: 18432 bytes\n"));
}

// Each field of a delta net is a different model.
TEST_F(DeltaNetModel, TheDescriptionForFingerprintsHasEachField) {
  const ModelSpec spec = Good(Tiny(kFamily));
  const std::vector<std::function<void(ModelSpec&)>> changes = {
      [](ModelSpec& s) { ++s.recurrent.shape.key_heads; },
      [](ModelSpec& s) { ++s.recurrent.shape.value_heads; },
      [](ModelSpec& s) { ++s.recurrent.shape.key_dim; },
      [](ModelSpec& s) { ++s.recurrent.shape.value_dim; },
      [](ModelSpec& s) { ++s.recurrent.shape.kernel; },
      [](ModelSpec& s) { s.attention_gate = false; },
      [](ModelSpec& s) { s.layers[2].state = false; }};
  for (const auto& change : changes) {
    ModelSpec other = spec;
    change(other);
    EXPECT_NE(other.ToString(), spec.ToString());
  }
}

}  // namespace
}  // namespace baton
