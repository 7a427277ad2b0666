#include "common/model/model_spec.h"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/base/mapped_file.h"
#include "common/kvcache/layout.h"
#include "common/model/describe_model.h"
#include "common/model/dummy_weights.h"
#include "common/model/generation_defaults.h"
#include "common/model/hf_config.h"
#include "common/model/open_model.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/model_gguf.h"
#include "tests/unit/model/step_runner.h"

namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

Json BaseConfig(const std::string& architecture) {
  return {{"architectures", {architecture}},
          {"hidden_size", 64},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 2},
          {"num_hidden_layers", 4},
          {"intermediate_size", 160},
          {"vocab_size", 512},
          {"max_position_embeddings", 2048},
          {"rms_norm_eps", 1e-5},
          {"eos_token_id", 2}};
}

class HfConfig : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) { folder_.Write(name, text); }
  StatusOr<ModelSpec> Read(const Json& config) {
    Write("config.json", config.dump());
    return SpecFromHfDirectory(folder_.path());
  }
  ModelSpec Good(const Json& config) {
    const auto spec = Read(config);
    EXPECT_TRUE(spec.ok()) << Message(spec.status());
    return spec.ok() ? *spec : ModelSpec{};
  }
  std::string Error(const Json& config) {
    const auto spec = Read(config);
    return spec.ok() ? "no error" : std::string(Message(spec.status()));
  }

  const TemporaryFolder folder_;
};

TEST_F(HfConfig, ReadsOlderKeysLikeNewOnes) {
  Json older = BaseConfig("LlamaForCausalLM");
  older["rope_theta"] = 500000.0;
  older["torch_dtype"] = "bfloat16";
  older["rope_scaling"] = {{"type", "llama3"},
                           {"factor", 8.0},
                           {"low_freq_factor", 1.0},
                           {"high_freq_factor", 4.0},
                           {"original_max_position_embeddings", 256}};
  Json newer = BaseConfig("LlamaForCausalLM");
  newer["dtype"] = "bfloat16";
  newer["rope_parameters"] = older["rope_scaling"];
  newer["rope_parameters"]["rope_type"] = "llama3";
  newer["rope_parameters"]["rope_theta"] = 500000.0;
  const ModelSpec spec = Good(older);
  EXPECT_EQ(spec.rope.theta, 500000.0);
  EXPECT_EQ(spec.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(spec.rope.factor, 8.0);
  EXPECT_EQ(spec.rope.original_context, 256);
  EXPECT_EQ(spec.head_dim, 8);
  EXPECT_EQ(spec.rope.rotary_dim, 8);
  EXPECT_EQ(spec.context_length, 2048);
  EXPECT_EQ(Good(newer).ToString(), spec.ToString());
}

TEST_F(HfConfig, FillsInWhatOldLlamaConfigsLeaveOut) {
  Json config = BaseConfig("LlamaForCausalLM");
  config.erase("num_key_value_heads");
  config["rope_scaling"] = nullptr;
  config["head_dim"] = nullptr;
  const ModelSpec spec = Good(config);
  EXPECT_EQ(spec.kv_heads, 8);
  EXPECT_EQ(spec.rope.theta, 10000.0);
  EXPECT_FALSE(spec.tied_head);
  EXPECT_EQ(spec.rope.pairing, RopePairing::kHalves);
}

TEST_F(HfConfig, StretchesTheContextByScaling) {
  Json config = BaseConfig("Qwen2ForCausalLM");
  config["rope_scaling"] = {
      {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 2048}};
  ModelSpec spec = Good(config);
  EXPECT_EQ(spec.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(spec.context_length, 8192);
  EXPECT_NEAR(spec.rope.attention_factor, 1.138629, 1e-6);
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2}};
  spec = Good(config);
  EXPECT_EQ(spec.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(spec.context_length, 4096);
}

TEST_F(HfConfig, KnowsTheFamiliesBiasesAndNorms) {
  ModelSpec spec = Good(BaseConfig("Qwen2ForCausalLM"));
  EXPECT_TRUE(spec.qkv_bias);
  EXPECT_FALSE(spec.o_bias);
  spec = Good(BaseConfig("Qwen3ForCausalLM"));
  EXPECT_EQ(spec.qk_norm, QkNorm::kHead);
  EXPECT_FALSE(spec.qkv_bias);
  Json llama = BaseConfig("LlamaForCausalLM");
  llama["attention_bias"] = true;
  llama["mlp_bias"] = true;
  spec = Good(llama);
  EXPECT_TRUE(spec.qkv_bias && spec.o_bias && spec.mlp_bias);
  Json by_type = BaseConfig("x");
  by_type.erase("architectures");
  by_type["model_type"] = "mistral";
  EXPECT_EQ(Good(by_type).family, ModelFamily::kMistral);
}

std::vector<int32_t> Windows(const ModelSpec& spec) {
  std::vector<int32_t> windows;
  for (const LayerSpec& layer : spec.layers) windows.push_back(layer.window);
  return windows;
}

TEST_F(HfConfig, SlidesWhereTheFamilySays) {
  Json config = BaseConfig("MistralForCausalLM");
  config["sliding_window"] = 32;
  EXPECT_THAT(Windows(Good(config)), ElementsAre(32, 32, 32, 32));
  config["sliding_window"] = nullptr;
  EXPECT_THAT(Windows(Good(config)), ElementsAre(0, 0, 0, 0));
  config = BaseConfig("Qwen2ForCausalLM");
  config["sliding_window"] = 64;
  config["max_window_layers"] = 3;
  EXPECT_THAT(Windows(Good(config)), ElementsAre(0, 0, 0, 0));
  config["use_sliding_window"] = true;
  EXPECT_THAT(Windows(Good(config)), ElementsAre(0, 0, 0, 64));
  config["layer_types"] = {
      "sliding_attention", "full_attention", "full_attention", "sliding_attention"};
  EXPECT_THAT(Windows(Good(config)), ElementsAre(64, 0, 0, 64));
  config["layer_types"] = {"full_attention"};
  EXPECT_THAT(Error(config), HasSubstr("layer_types has 1 entries for 4 layers"));
}

TEST_F(HfConfig, ReadsExperts) {
  Json config = BaseConfig("Qwen3MoeForCausalLM");
  config["num_experts"] = 8;
  config["num_experts_per_tok"] = 2;
  config["moe_intermediate_size"] = 48;
  config["norm_topk_prob"] = true;
  config["decoder_sparse_step"] = 2;
  config["mlp_only_layers"] = {3};
  const ModelSpec spec = Good(config);
  EXPECT_EQ(spec.moe.experts, 8);
  EXPECT_TRUE(spec.moe.normalize);
  std::vector<bool> moe;
  for (const LayerSpec& layer : spec.layers) moe.push_back(layer.moe);
  EXPECT_THAT(moe, ElementsAre(false, true, false, false));
  config["num_experts_per_tok"] = 9;
  EXPECT_THAT(Error(config), HasSubstr("experts per token is 9; it must be between 1 and 8"));
}

TEST_F(HfConfig, ReadsGlm4) {
  const std::string folder = std::string(BATON_TEST_DATA) + "/tiny/glm4/";
  const auto written = SpecFromHfDirectory(folder);
  ASSERT_TRUE(written.ok()) << Message(written.status());
  EXPECT_TRUE(written->post_norms() && written->qkv_bias && !written->o_bias);
  EXPECT_EQ(written->rope.rotary_dim, 8);
  EXPECT_EQ(Good(Json::parse(*ReadFile(folder + "config.published.json"))).ToString(),
            written->ToString());
  const ModelSpec bare = Good(BaseConfig("Glm4ForCausalLM"));
  EXPECT_EQ(bare.head_dim, 128) << "not hidden_size divided by the heads";
  EXPECT_EQ(bare.rope.rotary_dim, 64);
  EXPECT_FALSE(bare.qkv_bias);
}

TEST_F(HfConfig, ReadsMixtral) {
  Json config = BaseConfig("MixtralForCausalLM");
  config.erase("rms_norm_eps");
  config["num_local_experts"] = 8;
  config["num_experts_per_tok"] = 2;
  const ModelSpec spec = Good(config);
  EXPECT_EQ(spec.family, ModelFamily::kMixtral);
  EXPECT_EQ(spec.intermediate, 0);
  EXPECT_EQ(spec.moe.experts, 8);
  EXPECT_EQ(spec.moe.experts_per_token, 2);
  EXPECT_EQ(spec.moe.intermediate, 160);
  EXPECT_TRUE(spec.moe.normalize);
  EXPECT_FALSE(spec.qkv_bias);
  // The defaults of MixtralConfig in transformers.
  EXPECT_EQ(spec.rope.theta, 1e6);
  EXPECT_EQ(spec.norm_epsilon, 1e-5f);
  for (const LayerSpec& layer : spec.layers) {
    EXPECT_TRUE(layer.moe);
    EXPECT_EQ(layer.window, 0);
  }
  config["sliding_window"] = 64;
  for (const LayerSpec& layer : Good(config).layers) EXPECT_EQ(layer.window, 64);
  ModelSpec windowed = Good(config);
  EXPECT_EQ(windowed.sliding_window(), 64);
  windowed.layers[0].window = 80;
  EXPECT_EQ(windowed.sliding_window(), 80);
  windowed.layers[1].window = 0;
  EXPECT_EQ(windowed.sliding_window(), 0);
  config.erase("num_local_experts");
  EXPECT_THAT(Error(config), HasSubstr("config.json: num_local_experts is missing"));
}

// The bounds of the configuration reader are those of Validate.
TEST_F(HfConfig, HasOneRangeForEachField) {
  const std::vector<std::pair<std::string, int64_t>> most = {
      {"hidden_size", ModelSpec::kMaxHidden},
      {"num_attention_heads", ModelSpec::kMaxHeads},
      {"head_dim", ModelSpec::kMaxHeadDim},
      {"intermediate_size", ModelSpec::kMaxIntermediate},
      {"vocab_size", ModelSpec::kMaxVocabulary},
      {"num_hidden_layers", kMaxLayers},
      {"max_position_embeddings", ModelSpec::kMaxContext},
  };
  for (const auto& [key, highest] : most) {
    Json config = BaseConfig("LlamaForCausalLM");
    config["head_dim"] = 8;
    config[key] = highest;
    EXPECT_EQ(Error(config), "no error") << key;
    config[key] = highest + 1;
    EXPECT_THAT(
        Error(config),
        HasSubstr(fmt::format(
            "config.json: {} is {}; it must be between 1 and {}", key, highest + 1, highest)));
  }
}

TEST_F(HfConfig, ReadsTheDefaultsOfSampling) {
  Write("config.json", BaseConfig("LlamaForCausalLM").dump());
  const auto read = [&] { return LoadGenerationDefaults(folder_.path()); };
  EXPECT_EQ(read()->ToString(), "");
  Write("generation_config.json",
        R"({"temperature": 0.6, "top_p": 0.95, "top_k": -1, "repetition_penalty": 1.05,
            "do_sample": true, "eos_token_id": 2})");
  EXPECT_EQ(read()->ToString(), "temperature 0.6, top_p 0.95, repetition_penalty 1.05, top_k 0");
  Write("generation_config.json",
        R"({"do_sample": false, "temperature": 0.6, "top_p": 0.9, "max_new_tokens": 20})");
  EXPECT_EQ(read()->ToString(), "temperature 0, top_p 0.9");
  Write("generation_config.json", R"({"do_sample": null, "temperature": 0.6})");
  EXPECT_EQ(read()->ToString(), "temperature 0.6");
  Write("generation_config.json", R"({"do_sample": 3})");
  EXPECT_THAT(Message(read().status()), HasSubstr("do_sample"));
  Write("generation_config.json", R"({"top_p": 1.5})");
  EXPECT_EQ(read().status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(read().status()),
              HasSubstr("generation_config.json: top_p is 1.5; it must be in (0, 1]"));
  Write("generation_config.json", R"({"min_p": "x"})");
  EXPECT_THAT(Message(read().status()), HasSubstr("min_p is string; it must be a number"));
}

TEST_F(HfConfig, JoinsEndTokensOfBothFiles) {
  Json config = BaseConfig("LlamaForCausalLM");
  config["eos_token_id"] = {5, 7};
  Write("generation_config.json", R"({"eos_token_id": [7, 9]})");
  EXPECT_THAT(Good(config).eos, ElementsAre(5, 7, 9));
  Write("generation_config.json", R"({"eos_token_id": "x"})");
  EXPECT_THAT(Error(config), HasSubstr("generation_config.json: eos_token_id"));
}

struct BadValue {
  std::string key;
  Json value;
  std::string error;
};

TEST_F(HfConfig, NamesFileAndKeyOfABadValue) {
  const std::vector<BadValue> cases = {
      {"architectures",
       {"GPT2LMHeadModel"},
       "architecture GPT2LMHeadModel is not supported; supported are LlamaForCausalLM"},
      {"architectures", 3, "architectures must be a list of strings"},
      {"hidden_size", nullptr, "config.json: hidden_size is missing"},
      {"hidden_size", "64", "hidden_size is \"64\"; it must be an integer"},
      {"hidden_size", -1, "hidden_size is -1; it must be between 1 and"},
      {"hidden_size", 1e300, "it must be an integer"},
      {"hidden_size", 18446744073709551615u, "it must be an integer"},
      {"hidden_size", 63, "hidden_size 63 is not a multiple of num_attention_heads 8"},
      {"num_attention_heads", 0, "num_attention_heads is 0"},
      {"num_key_value_heads", 3, "heads 8 must be a multiple of the number of KV heads 3"},
      {"head_dim", 7, "head dimension 7 must be even"},
      {"num_hidden_layers", 100000, "num_hidden_layers is 100000"},
      {"rms_norm_eps", 0, "norm epsilon 0 must be in (0, 1)"},
      {"rms_norm_eps", "x", "rms_norm_eps is string; it must be a number"},
      {"rope_theta", 0.5, "rope_theta is 0.5"},
      {"rope_scaling", 4, "rope_scaling is number; it must be an object"},
      {"rope_scaling", {{"rope_type", "longrope"}}, "rope_type longrope is not supported"},
      {"rope_scaling", {{"rope_type", "linear"}}, "rope_scaling: factor is missing"},
      {"rope_scaling", {{"rope_type", "linear"}, {"factor", 0}}, "factor is 0"},
      {"partial_rotary_factor", 0.1, "rotary dimension"},
      {"hidden_act", "gelu", "hidden_act is gelu; only silu is supported"},
      {"quantization_config", Json::object(), "quant_method is missing"},
      {"tie_word_embeddings", "yes", "tie_word_embeddings is string; it must be a boolean"},
      {"eos_token_id", 512, "end-of-sequence token is 512; it must be between 0 and 511"},
      {"vocab_size", 0, "vocab_size is 0"},
      {"max_position_embeddings", nullptr, "max_position_embeddings is missing"},
  };
  for (const BadValue& bad : cases) {
    Json config = BaseConfig("LlamaForCausalLM");
    config[bad.key] = bad.value;
    EXPECT_THAT(Error(config), HasSubstr(bad.error)) << bad.key;
  }
  Write("config.json", "{not json");
  EXPECT_THAT(Message(SpecFromHfDirectory(folder_.path()).status()),
              HasSubstr("config.json is not valid JSON in UTF-8: line 1, column 3: "));
  Write("config.json", "[]");
  EXPECT_THAT(Message(SpecFromHfDirectory(folder_.path()).status()),
              HasSubstr("config.json: not a JSON object"));
  Write("config.json",
        R"({"a": {"b": )" + std::string(200'000, '[') + std::string(200'000, ']') + "}}");
  EXPECT_THAT(Message(SpecFromHfDirectory(folder_.path()).status()),
              HasSubstr("config.json: a.b is nested more than 60 levels deep"));
}

TEST(OpenModel, SaysWhatItExpects) {
  EXPECT_THAT(Message(OpenModel("/nonexistent").status()),
              HasSubstr("model /nonexistent does not exist"));
  EXPECT_THAT(Message(OpenModel(BATON_TEST_DATA).status()),
              HasSubstr("without config.json and with 0 .gguf files"));
  const std::string file = std::string(BATON_TEST_DATA) + "/tiny/README.md";
  EXPECT_THAT(Message(OpenModel(file).status()), HasSubstr("is not a GGUF file"));
}

TEST(OpenModel, NeedsNoWeightFileForDummyWeights) {
  const TemporaryFolder folder;
  folder.Write("config.json", BaseConfig("LlamaForCausalLM").dump());
  EXPECT_EQ(OpenModel(folder.path()).status().code(), StatusCode::kNotFound);
  const auto model = OpenModel(folder.path(), {LoadFormat::kDummy, 3});
  ASSERT_TRUE(model.ok()) << Message(model.status());
  EXPECT_EQ(model->name, std::filesystem::path(folder.path()).filename());
}

std::string DescriptionOf(const std::string& family) {
  const auto model = OpenModel(std::string(BATON_TEST_DATA) + "/tiny/" + family);
  BATON_CHECK(model.ok(), "{}", Message(model.status()));
  std::string text;
  for (const DescriptionLine& line : DescribeModel(*model).lines) {
    text += line.label + ": " + line.value + "\n";
  }
  return text;
}

TEST(DescribeModel, TellsTheBlocksThatAreNotThoseOfLlama) {
  EXPECT_THAT(DescriptionOf("llama_gqa"), Not(HasSubstr("blocks: ")));
  EXPECT_THAT(DescriptionOf("granite"),
              HasSubstr("blocks: embedding scale 6, residual scale 0.35, attention scale 0.09, "
                        "logit scale 0.33333334\n"));
  EXPECT_THAT(DescriptionOf("olmo2"), HasSubstr("blocks: post-norm\n"));
  EXPECT_THAT(DescriptionOf("olmo2"), HasSubstr("q and k normalised (of all heads together)"));
  EXPECT_THAT(DescriptionOf("phi"), HasSubstr("blocks: parallel, LayerNorm with bias\n"));
  EXPECT_THAT(DescriptionOf("phi"), HasSubstr("feed-forward: 144, with biases, gelu tanh\n"));
  EXPECT_THAT(DescriptionOf("dots1"), HasSubstr("in 2 layers, a shared expert of 48\n"));
  EXPECT_THAT(DescriptionOf("smollm3"), HasSubstr("no rope in 1 layers"));
}

TEST(DescribeModel, TellsSinksCapsAndTheGateOfExperts) {
  const std::string oss = DescriptionOf("gpt_oss");
  EXPECT_THAT(oss, HasSubstr("output bias, attention sinks, sliding window"));
  EXPECT_THAT(oss, HasSubstr("in 4 layers, with biases, a gate clamped at 7\n"));
  const std::string gemma = DescriptionOf("gemma2");
  EXPECT_THAT(gemma, HasSubstr(", attention logits soft-capped at 3, sliding window"));
  EXPECT_THAT(gemma, HasSubstr(", logits soft-capped at 4\n"));
  EXPECT_THAT(gemma, HasSubstr("feed-forward: 128, gelu tanh gated\n"));
  for (const char* family : {"granite", "gemma3_text", "qwen3_moe"}) {
    const std::string text = DescriptionOf(family);
    EXPECT_THAT(text, Not(HasSubstr("sinks"))) << family;
    EXPECT_THAT(text, Not(HasSubstr("capped"))) << family;
    EXPECT_THAT(text, Not(HasSubstr("clamped"))) << family;
    EXPECT_THAT(text, Not(HasSubstr("with biases"))) << family;
  }
}

TEST(DescribeModel, TellsShapeTypesAndKvBytes) {
  const auto model = OpenModel(std::string(BATON_TEST_DATA) + "/tiny/qwen3_moe/");
  ASSERT_TRUE(model.ok()) << Message(model.status());
  const ModelDescription description = DescribeModel(*model);
  std::string text;
  for (const DescriptionLine& line : description.lines) {
    text += line.label + ": " + line.value + "\n";
  }
  EXPECT_THAT(text, HasSubstr("name: qwen3_moe\n"));
  EXPECT_THAT(text, HasSubstr("8 heads, 2 KV heads, head dimension 16, q and k normalised"));
  EXPECT_THAT(text, HasSubstr("8 experts of 48, 2 per token, in 3 layers"));
  EXPECT_THAT(text, HasSubstr("KV per token: 384 bytes at 16 bits, 768 at 32 bits\n"));
  EXPECT_THAT(text, HasSubstr("f32"));
  size_t bytes = 0;
  for (const TensorInfo& tensor : description.tensors) bytes += tensor.bytes;
  EXPECT_EQ(description.tensor_bytes, bytes);
  EXPECT_GT(bytes, 1000000u);
}

}  // namespace
}  // namespace baton
