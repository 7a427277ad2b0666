#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/model/describe_model.h"
#include "common/model/open_model.h"
#include "tests/unit/model/hf_family_fixture.h"
#include "tests/unit/model/safetensors_writer.h"
#include "tests/unit/model/step_runner.h"

// Llama 4: its configurations, its weights, and attention in chunks. tiny_golden_test compares it
// with transformers.
namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

const std::string kPath = std::string(BATON_TEST_DATA) + "/tiny/llama4_text";

OpenedModel Open() {
  auto model = OpenModel(kPath);
  BATON_CHECK(model.ok(), "{}", Message(model.status()));
  return *std::move(model);
}

std::vector<TokenId> Prompt(size_t length) {
  std::vector<TokenId> tokens(length);
  for (size_t i = 0; i < length; ++i) {
    tokens[i] = static_cast<TokenId>((11 + 37 * i + i * i % 11) % 512);
  }
  return tokens;
}

std::vector<Logits> LogitsOf(const OpenedModel& model, size_t length, size_t chunk) {
  const auto runner = StepRunner::Create(model.spec, *model.weights);
  BATON_CHECK(runner.ok(), "{}", Message(runner.status()));
  return (*runner)->RunAll(0, Prompt(length), chunk);
}

class Llama4Model : public HfFamilyTest {
 protected:
  std::string ErrorWith(const std::string& key, const Json& value) {
    Json config = Tiny("llama4_text");
    config[key] = value;
    return std::string(Message(Read(config).status()));
  }
  std::vector<int32_t> ChunksOf(const ModelSpec& spec) {
    std::vector<int32_t> chunks;
    for (const LayerSpec& layer : spec.layers) chunks.push_back(layer.chunk);
    return chunks;
  }
  StatusOr<OpenedModel> OpenWith(const Json& config, const HeldTensors& tensors) {
    folder_.Write("config.json", config.dump());
    folder_.Write("model.safetensors", SafetensorsFileOf(tensors));
    return OpenModel(folder_.path());
  }
};

TEST_F(Llama4Model, AbsentKeysHaveTheFamilysDefaults) {
  ModelSpec spec = Without("llama4_text",
                           {"attention_chunk_size",
                            "attn_scale",
                            "attn_temperature_tuning",
                            "floor_scale",
                            "head_dim",
                            "interleave_moe_layer_step",
                            "no_rope_layer_interval",
                            "rms_norm_eps",
                            "rope_theta",
                            "use_qk_norm"});
  EXPECT_THAT(ChunksOf(spec), ElementsAre(8192, 8192, 8192, 0));
  EXPECT_EQ(spec.query_scaling, (QueryScaling{0.1f, 8192}));
  EXPECT_EQ(spec.head_dim, 128);
  EXPECT_EQ(spec.norm_epsilon, 1e-5f);
  EXPECT_EQ(spec.rope.theta, 5e5);
  EXPECT_EQ(spec.rope.pairing, RopePairing::kAdjacent);
  EXPECT_EQ(spec.qk_norm, QkNorm::kUnitAfterRope);
  EXPECT_TRUE(spec.layers[2].rotary && !spec.layers[3].rotary);
  EXPECT_TRUE(spec.layers[0].moe && spec.layers[3].moe) << "every layer has experts";
  EXPECT_EQ(spec.intermediate, 0) << "no layer is dense";
  EXPECT_EQ(spec.moe.shared_intermediate, 48);
  spec = Without("llama4_text", {"intermediate_size_mlp"});
  EXPECT_EQ(spec.intermediate, 16384);
  Json config = Tiny("llama4_text");
  config["num_attention_heads"] = 8;
  config.erase("num_key_value_heads");
  EXPECT_EQ(Good(config).kv_heads, 8);
  config["num_attention_heads"] = 16;
  EXPECT_EQ(Good(config).kv_heads, 8);
  config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(Good(config).kv_heads, 16);
}

TEST_F(Llama4Model, ListsOfLayersOverrideTheRules) {
  Json config = Tiny("llama4_text");
  config["no_rope_layers"] = {0, 1, 1, 0};
  ModelSpec spec = Good(config);
  EXPECT_THAT(ChunksOf(spec), ElementsAre(0, 64, 64, 0));
  EXPECT_TRUE(!spec.layers[0].rotary && spec.layers[1].rotary);
  config["layer_types"] = {
      "chunked_attention", "full_attention", "chunked_attention", "full_attention"};
  config["moe_layers"] = {0, 2};
  spec = Good(config);
  EXPECT_THAT(ChunksOf(spec), ElementsAre(64, 0, 64, 0));
  EXPECT_TRUE(!spec.layers[0].rotary && spec.layers[1].rotary) << "rope has a list of its own";
  EXPECT_TRUE(spec.layers[0].moe && !spec.layers[1].moe && spec.layers[2].moe);
  config["moe_layers"] = Json::array();
  EXPECT_FALSE(Good(config).layers[1].moe);
  config["attn_temperature_tuning"] = 4;
  EXPECT_EQ(Good(config).query_scaling, (QueryScaling{0.5f, 128})) << "as in older files";
  config["attn_temperature_tuning"] = 0;
  EXPECT_EQ(Good(config).query_scaling, QueryScaling());
  config["attn_temperature_tuning"] = false;
  EXPECT_EQ(Good(config).query_scaling, QueryScaling());
  config["use_qk_norm"] = false;
  EXPECT_EQ(Good(config).qk_norm, QkNorm::kNone);
}

TEST_F(Llama4Model, NamesFileAndKeyOfABadMember) {
  const std::vector<std::pair<std::string, std::pair<Json, std::string>>> cases = {
      {"attention_chunk_size", {0, "attention_chunk_size is 0; it must be between 1"}},
      {"attention_chunk_size", {"x", "attention_chunk_size is \"x\"; it must be an integer"}},
      {"attention_chunk_size",
       {nullptr, "layer 0 is chunked_attention, but attention_chunk_size is null"}},
      {"attn_scale", {-1, "attn_scale is -1; it must be between 0"}},
      {"attn_temperature_tuning", {"x", "attn_temperature_tuning is string; it must be a boolean"}},
      {"attn_temperature_tuning", {-1, "attn_temperature_tuning is -1; it must be between 0"}},
      {"floor_scale", {0, "floor_scale is 0; it must be between 1"}},
      {"floor_scale", {1.5, "floor_scale is 1.5; only whole numbers are supported"}},
      {"interleave_moe_layer_step", {0, "interleave_moe_layer_step is 0; it must be between 1"}},
      {"intermediate_size_mlp", {0, "intermediate_size_mlp is 0; it must be between 1"}},
      {"layer_types", {Json{"full_attention"}, "layer_types has 1 entries for 4 layers"}},
      {"layer_types",
       {{"full_attention", "chunked_attention", "sliding_attention", "full_attention"},
        "layer_types has sliding_attention; full_attention and chunked_attention are supported"}},
      {"moe_layers", {Json{-1}, "moe_layers has -1; it must be between 0"}},
      {"no_rope_layers", {Json{1, 2, 1, 0}, "no_rope_layers has 2; it must be between 0 and 1"}},
      {"no_rope_layers", {Json{1, 1}, "no_rope_layers has 2 entries for 4 layers"}},
      {"num_experts_per_tok", {5, "experts per token is 5; it must be between 1 and 4"}},
      {"num_local_experts", {nullptr, "num_local_experts is missing"}},
      {"use_qk_norm", {1, "use_qk_norm is number; it must be a boolean"}},
      {"quantization_config", {{{"quant_method", "quark"}}, "quant_method is quark; supported"}},
  };
  for (const auto& [key, bad] : cases) {
    const std::string error = ErrorWith(key, bad.first);
    EXPECT_THAT(error, HasSubstr(bad.second)) << key;
    EXPECT_THAT(error, HasSubstr("config.json")) << key;
  }
}

TEST_F(Llama4Model, NamesATensorThatIsMissingOrHasAnotherShape) {
  const Json config = Tiny("llama4_text");
  const HeldTensors all = TensorsIn(kPath);
  const auto error_with = [&](const HeldTensors& tensors) {
    const auto model = OpenWith(config, tensors);
    if (!model.ok()) return std::string(Message(model.status()));
    return std::string(Message(StepRunner::Create(model->spec, *model->weights).status()));
  };
  const std::vector<std::tuple<std::string, std::vector<int64_t>, std::string>> cases = {
      {"1.feed_forward.experts.gate_up_proj",
       {4, 96, 64},
       "has shape [4, 96, 64]; expected [64, 96] for each of 4 experts"},
      {"1.feed_forward.experts.down_proj",
       {4, 64, 48},
       "has shape [4, 64, 48]; expected [48, 64] for each of 4 experts"},
      {"1.feed_forward.router.weight", {64, 4}, "has shape [64, 4]; expected [4, 64]"},
      {"1.feed_forward.shared_expert.up_proj.weight",
       {64, 48},
       "has shape [64, 48]; expected [48, 64]"},
      {"0.feed_forward.gate_proj.weight", {64, 112}, "has shape [64, 112]; expected [112, 64]"},
  };
  for (const auto& [part, shape, error] : cases) {
    const std::string name = "model.layers." + part;
    HeldTensors tensors = all;
    tensors.at(name).shape = shape;
    EXPECT_THAT(error_with(tensors), HasSubstr("tensor " + name + " " + error));
    tensors.erase(name);
    EXPECT_THAT(error_with(tensors), HasSubstr("tensor " + name + " is missing"));
  }
}

// Published files have a model with images, whose text model has a configuration and a prefix of
// its own.
TEST_F(Llama4Model, ReadsTheTextModelOfOneWithImages) {
  const OpenedModel plain = Open();
  Json text = Tiny("llama4_text");
  text.erase("architectures");
  const Json config = {{"architectures", {"Llama4ForConditionalGeneration"}},
                       {"model_type", "llama4"},
                       {"text_config", text},
                       {"vision_config", {{"model_type", "llama4_vision_model"}}}};
  HeldTensors tensors;
  for (const auto& [name, tensor] : TensorsIn(kPath)) tensors["language_model." + name] = tensor;
  tensors["vision_model.class_embedding"] = {DType::kF32, {1}, std::vector<std::byte>(4)};
  const auto model = OpenWith(config, tensors);
  ASSERT_TRUE(model.ok()) << Message(model.status());
  EXPECT_EQ(model->spec.ToString(), plain.spec.ToString());
  EXPECT_EQ(LogitsOf(*model, 70, 70), LogitsOf(plain, 70, 70));
  EXPECT_THAT(DescribeUnread(model->spec, *model->weights),
              ElementsAre(HasSubstr("vision_model.class_embedding")));
  tensors.erase("language_model.model.norm.weight");
  const auto without = OpenWith(config, tensors);
  ASSERT_TRUE(without.ok()) << Message(without.status());
  EXPECT_THAT(Message(StepRunner::Create(without->spec, *without->weights).status()),
              HasSubstr("tensor model.norm.weight is missing"));
  Json wrong = config;
  wrong["text_config"] = 3;
  EXPECT_THAT(std::string(Message(Read(wrong).status())),
              HasSubstr("text_config is number; it must be an object"));
  wrong["text_config"] = text;
  wrong["text_config"]["attn_scale"] = "x";
  EXPECT_THAT(std::string(Message(Read(wrong).status())),
              HasSubstr("text_config: attn_scale is string; it must be a number"));
}

// Chunks of a prompt end before, at and after the borders of attention chunks of 64 tokens.
TEST_F(Llama4Model, RowsHaveTheSameBitsInEveryChunk) {
  const OpenedModel model = Open();
  const std::vector<Logits> whole = LogitsOf(model, 150, 150);
  for (const size_t chunk : {1, 7, 16, 63, 64, 65, 100}) {
    EXPECT_EQ(LogitsOf(model, 150, chunk), whole) << "chunks of " << chunk;
  }
}

TEST_F(Llama4Model, EachFieldCounts) {
  const OpenedModel model = Open();
  const std::vector<std::pair<std::string, std::function<void(ModelSpec&)>>> changes = {
      {"chunk", [](ModelSpec& s) { s.layers[1].chunk = 32; }},
      {"no chunk", [](ModelSpec& s) { s.layers[1].chunk = 0; }},
      {"window", [](ModelSpec& s) { std::swap(s.layers[1].chunk, s.layers[1].window); }},
      {"slope", [](ModelSpec& s) { s.query_scaling = {}; }},
      {"step", [](ModelSpec& s) { s.query_scaling.step = 64; }},
      {"norm", [](ModelSpec& s) { s.qk_norm = QkNorm::kNone; }},
      {"inputs", [](ModelSpec& s) { s.moe.weighted_inputs = false; }},
      {"score", [](ModelSpec& s) { s.moe.score = RouterScore::kSoftmax; }},
      {"rotary", [](ModelSpec& s) { s.layers[3].rotary = true; }},
  };
  const Logits right = LogitsOf(model, 140, 140).back();
  for (const auto& [what, change] : changes) {
    OpenedModel other = Open();
    change(other.spec);
    EXPECT_NE(other.spec.ToString(), model.spec.ToString()) << what;
    const Logits logits = LogitsOf(other, 140, 140).back();
    double largest = 0;
    for (size_t i = 0; i < right.size(); ++i) {
      largest = std::max(largest, std::abs(double{right[i]} - logits[i]));
    }
    EXPECT_GT(largest, 0.01) << what;
  }
}

TEST_F(Llama4Model, TellsChunksAndWhatABackendNeeds) {
  const OpenedModel model = Open();
  EXPECT_EQ(Describe(OpVariant::kChunkedAttention), "attention in chunks");
  std::string text;
  for (const DescriptionLine& line : DescribeModel(model).lines) {
    text += line.label + ": " + line.value + "\n";
  }
  EXPECT_THAT(
      text,
      HasSubstr("q and k normalised (of heads after rope, without weights), chunks of 64 in "
                "3 layers, queries scaled by position, no rope in 1 layers\n"));
  EXPECT_THAT(text, HasSubstr("3 layers with 384 bytes per token of a chunk of 64"));
}

TEST_F(Llama4Model, ALayerHasAWindowOrChunks) {
  ModelSpec spec = Open().spec;
  spec.layers[0].window = 16;
  EXPECT_THAT(std::string(Message(spec.Validate("the file"))),
              HasSubstr("a layer has a sliding window of 16 and attention chunks of 64 tokens"));
}

}  // namespace
}  // namespace baton
