#include <cmath>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/model/describe_model.h"
#include "common/model/dummy_weights.h"
#include "common/model/op_variants.h"
#include "common/model/open_model.h"
#include "common/model/rank_plan.h"
#include "tests/unit/model/hf_family_fixture.h"
#include "tests/unit/model/safetensors_writer.h"
#include "tests/unit/model/step_runner.h"

// Models with multi-head latent attention: their configurations, weights, ranks and descriptions.
// tiny_golden_test compares them with transformers.
namespace baton {
namespace {

using testing::Contains;
using testing::HasSubstr;
using Json = nlohmann::json;

std::string PathOf(const std::string& family) {
  return std::string(BATON_TEST_DATA) + "/tiny/" + family;
}

class LatentModel : public HfFamilyTest {
 protected:
  std::string ErrorWith(const std::string& family, const std::string& key, const Json& value) {
    Json config = Tiny(family);
    config[key] = value;
    return std::string(Message(Read(config).status()));
  }
  // The model of `config` and `tensors`.
  StatusOr<OpenedModel> OpenWith(const Json& config, const HeldTensors& tensors) {
    folder_.Write("config.json", config.dump());
    folder_.Write("model.safetensors", SafetensorsFileOf(tensors));
    return OpenModel(folder_.path());
  }
  static std::vector<Logits> LogitsOf(const OpenedModel& model) {
    const auto runner = StepRunner::Create(model.spec, *model.weights);
    BATON_CHECK(runner.ok(), "{}", Message(runner.status()));
    const std::vector<TokenId> tokens = {5, 17, 301, 4, 99, 7};
    return (*runner)->RunAll(0, tokens, tokens.size());
  }
};

TEST_F(LatentModel, AbsentKeysHaveTheFamilysDefaults) {
  Json config = Tiny("deepseek_v3");
  for (const char* key : {"q_lora_rank",
                          "kv_lora_rank",
                          "qk_nope_head_dim",
                          "qk_rope_head_dim",
                          "v_head_dim",
                          "n_group",
                          "topk_group",
                          "norm_topk_prob",
                          "routed_scaling_factor",
                          "n_shared_experts",
                          "scoring_func",
                          "topk_method",
                          "rms_norm_eps",
                          "rope_scaling"}) {
    config.erase(key);
  }
  ModelSpec spec = Good(config);
  EXPECT_EQ(spec.latent.q_rank, 1536);
  EXPECT_EQ(spec.latent.rank, 512);
  EXPECT_EQ(spec.head_dim, 192);
  EXPECT_EQ(spec.rope.rotary_dim, 64);
  EXPECT_EQ(spec.output_head_dim(), 128);
  EXPECT_EQ(spec.attention_scale, 0) << "1 / root of head_dim";
  EXPECT_EQ(spec.norm_epsilon, 1e-6f);
  EXPECT_EQ(spec.moe.groups, 8);
  EXPECT_EQ(spec.moe.groups_per_token, 4);
  EXPECT_EQ(spec.moe.scale, 2.5f);
  EXPECT_EQ(spec.moe.shared_intermediate, 24);
  EXPECT_TRUE(spec.moe.normalize && spec.moe.selection_bias);
  config = Tiny("deepseek_v3");
  config.erase("first_k_dense_replace");
  EXPECT_FALSE(Good(config).layers[2].moe) << "three dense layers";
  config = Tiny("deepseek_v2_qlora");
  for (const char* key : {"topk_method", "routed_scaling_factor", "n_group", "topk_group"}) {
    config.erase(key);
  }
  spec = Good(config);
  EXPECT_EQ(spec.moe.groups, 1);
  EXPECT_EQ(spec.moe.scale, 1);
  EXPECT_FALSE(spec.moe.normalize || spec.moe.selection_bias);
}

TEST_F(LatentModel, QueriesMayHaveNoLatent) {
  EXPECT_EQ(Good(Tiny("deepseek_v2_noqlora")).latent.q_rank, 0);
  Json config = Tiny("deepseek_v2_noqlora");
  config.erase("q_lora_rank");
  EXPECT_EQ(Good(config).latent.q_rank, 1536) << "null is not an absent key";
}

TEST_F(LatentModel, YarnScalesAttentionAndRotationByFactorsOfTheirOwn) {
  Json config = Tiny("deepseek_v3");
  const double all = 0.1 * std::log(8.0) + 1;
  ModelSpec spec = Good(config);
  EXPECT_FLOAT_EQ(spec.attention_scale, static_cast<float>(all * all / std::sqrt(32.0)));
  EXPECT_EQ(spec.rope.attention_factor, 1);
  config["rope_scaling"]["mscale_all_dim"] = 0;
  spec = Good(config);
  EXPECT_EQ(spec.attention_scale, 0);
  EXPECT_FLOAT_EQ(static_cast<float>(spec.rope.attention_factor), static_cast<float>(all));
  config["rope_scaling"]["mscale_all_dim"] = 0.5;
  spec = Good(config);
  const double half = 0.05 * std::log(8.0) + 1;
  EXPECT_FLOAT_EQ(spec.attention_scale, static_cast<float>(half * half / std::sqrt(32.0)));
  EXPECT_DOUBLE_EQ(spec.rope.attention_factor, all / half);
  config["rope_interleave"] = false;
  EXPECT_EQ(Good(config).rope.pairing, RopePairing::kHalves);
}

TEST_F(LatentModel, NamesFileAndKeyOfABadMember) {
  struct Bad {
    std::string family;
    std::string key;
    Json value;
    std::string error;
  };
  const std::vector<Bad> cases = {
      {"deepseek_v3", "q_lora_rank", 0, "q_lora_rank is 0; it must be between 1"},
      {"deepseek_v3", "q_lora_rank", "x", "q_lora_rank is \"x\"; it must be an integer"},
      {"deepseek_v3", "kv_lora_rank", 0, "kv_lora_rank is 0; it must be between 1"},
      {"deepseek_v3", "kv_lora_rank", 4096, "numbers of a token in the KV cache is 4104"},
      {"deepseek_v3", "qk_nope_head_dim", -1, "qk_nope_head_dim is -1; it must be between 1"},
      {"deepseek_v3", "qk_nope_head_dim", 1020, "head dimension is 1028; it must be between 2"},
      {"deepseek_v3", "qk_rope_head_dim", 7, "must be even"},
      {"deepseek_v3", "v_head_dim", 0, "v_head_dim is 0; it must be between 1"},
      {"deepseek_v3", "v_head_dim", 2000, "v_head_dim is 2000; it must be between 1 and 1024"},
      {"deepseek_v3", "scoring_func", "softmax", "scoring_func is softmax; supported: sigmoid"},
      {"deepseek_v3", "topk_method", "greedy", "topk_method is greedy; supported: noaux_tc"},
      {"deepseek_v3", "moe_layer_freq", 2, "moe_layer_freq is not 1; only 1 is supported"},
      {"deepseek_v3", "n_group", 3, "must be a multiple of the number of expert groups 3"},
      {"deepseek_v3", "topk_group", 5, "expert groups per token is 5; it must be between 1 and 4"},
      {"deepseek_v3", "rope_interleave", 1, "rope_interleave is number; it must be a boolean"},
      {"deepseek_v3", "attention_bias", 1, "attention_bias is number; it must be a boolean"},
      {"deepseek_v3",
       "quantization_config",
       {{"quant_method", "quark"}},
       "quant_method is quark; supported"},
      {"deepseek_v2_qlora", "scoring_func", "sigmoid", "scoring_func is sigmoid"},
      {"deepseek_v2_qlora", "topk_method", "noaux_tc", "supported: greedy, group_limited_greedy"},
      {"deepseek_v2_qlora", "norm_topk_prob", true, "norm_topk_prob is true; deepseek_v2 is"},
  };
  for (const Bad& bad : cases) {
    const std::string error = ErrorWith(bad.family, bad.key, bad.value);
    EXPECT_THAT(error, HasSubstr(bad.error)) << bad.family << " " << bad.key;
    EXPECT_THAT(error, HasSubstr("config.json: ")) << bad.family << " " << bad.key;
  }
}

TEST_F(LatentModel, NamesATensorThatIsMissingOrHasAnotherShape) {
  const HeldTensors all = TensorsIn(PathOf("deepseek_v3"));
  for (const char* name : {"q_a_proj.weight",
                           "q_a_layernorm.weight",
                           "q_b_proj.weight",
                           "kv_a_proj_with_mqa.weight",
                           "kv_a_layernorm.weight",
                           "kv_b_proj.weight",
                           "o_proj.weight"}) {
    SCOPED_TRACE(name);
    const std::string tensor = std::string("model.layers.2.self_attn.") + name;
    HeldTensors tensors = all;
    ASSERT_EQ(tensors.erase(tensor), 1u);
    const auto without = OpenWith(Tiny("deepseek_v3"), tensors);
    ASSERT_TRUE(without.ok()) << Message(without.status());
    Status status = StepRunner::Create(without->spec, *without->weights).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(Message(status), HasSubstr("tensor " + tensor + " is missing"));

    HeldTensor& other = tensors[tensor];
    other = all.at(tensor);
    other.shape[0] /= 2;
    other.bytes.resize(other.bytes.size() / 2);
    const auto halved = OpenWith(Tiny("deepseek_v3"), tensors);
    ASSERT_TRUE(halved.ok()) << Message(halved.status());
    status = StepRunner::Create(halved->spec, *halved->weights).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), HasSubstr("tensor " + tensor + " has shape ["));
  }
}

// The layer behind the last one predicts more tokens, and is not needed.
TEST_F(LatentModel, TheLayerOfMultiTokenPredictionIsNotLoaded) {
  HeldTensors tensors = TensorsIn(PathOf("deepseek_v3"));
  const HeldTensors layers = tensors;
  for (const auto& [name, tensor] : layers) {
    const std::string last = "model.layers.2.";
    if (name.starts_with(last)) tensors["model.layers.3." + name.substr(last.size())] = tensor;
  }
  const auto model = OpenWith(Tiny("deepseek_v3"), tensors);
  ASSERT_TRUE(model.ok()) << Message(model.status());
  const auto published = OpenModel(PathOf("deepseek_v3"));
  EXPECT_EQ(LogitsOf(*model), LogitsOf(*published));
  EXPECT_THAT(DescribeUnread(model->spec, *model->weights),
              testing::ElementsAre(HasSubstr("layers 3 to 3 of the files are not loaded")));
}

// q_a, kv_a and o have biases, or none of them.
TEST_F(LatentModel, BiasesOfLatentsAndOfTheOutputCount) {
  Json config = Tiny("deepseek_v3");
  config["attention_bias"] = true;
  HeldTensors tensors = TensorsIn(PathOf("deepseek_v3"));
  const auto without = OpenWith(config, tensors);
  ASSERT_TRUE(without.ok());
  EXPECT_THAT(Message(StepRunner::Create(without->spec, *without->weights).status()),
              HasSubstr("self_attn.q_a_proj.bias is missing"));
  const std::vector<std::pair<std::string, int64_t>> biases = {
      {"q_a_proj.bias", 48}, {"kv_a_proj_with_mqa.bias", 40}, {"o_proj.bias", 64}};
  for (int layer = 0; layer < 3; ++layer) {
    for (const auto& [name, size] : biases) {
      tensors["model.layers." + std::to_string(layer) + ".self_attn." + name] = {
          DType::kF32, {size}, std::vector<std::byte>(static_cast<size_t>(size) * 4)};
    }
  }
  const auto zeros = OpenWith(config, tensors);
  ASSERT_TRUE(zeros.ok()) << Message(zeros.status());
  const auto plain = LogitsOf(*OpenModel(PathOf("deepseek_v3")));
  EXPECT_EQ(LogitsOf(*zeros), plain);
  for (const auto& [name, size] : biases) {
    HeldTensors changed = tensors;
    HeldTensor& bias = changed.at("model.layers.1.self_attn." + name);
    for (size_t at = 3; at < bias.bytes.size(); at += 4) bias.bytes[at] = std::byte{0x3D};
    const auto model = OpenWith(config, changed);
    ASSERT_TRUE(model.ok());
    EXPECT_NE(LogitsOf(*model), plain) << name;
  }
}

TEST_F(LatentModel, RanksDivideHeadsAndHoldTheWholeLatent) {
  const ModelSpec spec = Good(Tiny("deepseek_v3"));
  const auto refused = MakeRankPlan(spec, RankPlace::Of(3, 1, 0), ExchangeMode::kGather);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(refused.status()),
              HasSubstr("tensor_parallel is 3; for a model with 4 heads, intermediate size 128, "
                        "16 experts, a shared expert of 24 it must be one of 1, 2, 4"));
  for (int32_t rank = 0; rank < 4; ++rank) {
    const auto plan = MakeRankPlan(spec, RankPlace::Of(2, 2, rank), ExchangeMode::kGather);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->heads.q_heads, 2);
    EXPECT_EQ(plan->kv_shard.head_count, 0);
    EXPECT_THAT(plan->ends.attention, testing::ElementsAre(2 * 16, 4 * 16));
  }
}

TEST_F(LatentModel, TellsWhatTheKvTakesAndWhatABackendNeeds) {
  const ModelSpec spec = Good(Tiny("deepseek_v3"));
  EXPECT_EQ(spec.KvBytesPerToken(2), 3u * 40 * 2);
  EXPECT_THAT(VariantsOf(spec), Contains(OpVariant::kLatentAttention));
  EXPECT_EQ(Describe(OpVariant::kLatentAttention), "multi-head latent attention");
  const auto model = OpenModel(PathOf("deepseek_v3"));
  ASSERT_TRUE(model.ok());
  std::string text;
  for (const DescriptionLine& line : DescribeModel(*model).lines) {
    text += line.label + ": " + line.value + "\n";
  }
  EXPECT_THAT(text,
              HasSubstr("attention: 4 heads, head dimension 32 (8 with rope), 16 of values, keys "
                        "and values of a latent of 32, queries of a latent of 48\n"));
  EXPECT_THAT(text,
              HasSubstr("KV per token: 240 bytes at 16 bits, 480 at 32 bits, on each "
                        "tensor-parallel rank\n"));
}

TEST_F(LatentModel, TheBackendRefusesLatentsThatItCannotStore) {
  ModelSpec spec = Good(Tiny("deepseek_v3"));
  spec.latent.rank = 36;
  EXPECT_EQ(Message(StepRunner::Create(spec, DummyWeights(1)).status()),
            "the model cannot run on cpu: the latent has 36 numbers; the CPU backend needs a "
            "multiple of 8");
}

// Each field of a latent is a different model.
TEST_F(LatentModel, TheDescriptionForFingerprintsHasEachField) {
  const ModelSpec spec = Good(Tiny("deepseek_v3"));
  const std::vector<std::function<void(ModelSpec&)>> changes = {
      [](ModelSpec& s) { ++s.latent.q_rank; },
      [](ModelSpec& s) { ++s.latent.rank; },
      [](ModelSpec& s) { ++s.latent.nope_dim; },
      [](ModelSpec& s) { ++s.latent.rope_dim; },
      [](ModelSpec& s) { ++s.latent.value_dim; },
      [](ModelSpec& s) { s.moe.group_score = GroupScore::kBest; }};
  for (const auto& change : changes) {
    ModelSpec other = spec;
    change(other);
    EXPECT_NE(other.ToString(), spec.ToString());
  }
}

}  // namespace
}  // namespace baton
