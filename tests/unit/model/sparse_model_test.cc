#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/model/describe_model.h"
#include "common/model/dummy_weights.h"
#include "common/model/op_variants.h"
#include "common/model/open_model.h"
#include "tests/unit/model/hf_family_fixture.h"
#include "tests/unit/model/safetensors_writer.h"
#include "tests/unit/model/step_runner.h"

// DeepSeek-V3.2, whose rows attend to the tokens that an index selects. tiny_golden_test compares
// it with transformers.
namespace baton {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

const std::string kPath = std::string(BATON_TEST_DATA) + "/tiny/deepseek_v32";

OpenedModel Open() {
  auto model = OpenModel(kPath);
  BATON_CHECK(model.ok(), "{}", Message(model.status()));
  return *std::move(model);
}

std::vector<Logits> LogitsOf(const OpenedModel& model, size_t length, size_t chunk) {
  std::vector<TokenId> tokens(length);
  for (size_t i = 0; i < length; ++i) {
    tokens[i] = static_cast<TokenId>((11 + 37 * i + i * i % 11) % 512);
  }
  const auto runner = StepRunner::Create(model.spec, *model.weights);
  BATON_CHECK(runner.ok(), "{}", Message(runner.status()));
  return (*runner)->RunAll(0, tokens, chunk);
}

class SparseModel : public HfFamilyTest {
 protected:
  std::string ErrorWith(const std::string& key, const Json& value) {
    Json config = Tiny("deepseek_v32");
    config[key] = value;
    return std::string(Message(Read(config).status()));
  }
  StatusOr<OpenedModel> OpenWith(const Json& config, const HeldTensors& tensors) {
    folder_.Write("config.json", config.dump());
    folder_.Write("model.safetensors", SafetensorsFileOf(tensors));
    return OpenModel(folder_.path());
  }
};

TEST_F(SparseModel, AbsentKeysHaveTheFamilysDefaults) {
  Json config = Tiny("deepseek_v32");
  config["num_hidden_layers"] = 5;
  config["n_routed_experts"] = 16;
  config["num_experts_per_tok"] = 8;
  for (const char* key : {"index_n_heads",
                          "index_head_dim",
                          "index_topk",
                          "layer_types",
                          "mlp_layer_types",
                          "first_k_dense_replace",
                          "n_group",
                          "topk_group",
                          "routed_scaling_factor"}) {
    config.erase(key);
  }
  const ModelSpec spec = Good(config);
  EXPECT_EQ(spec.latent.index,
            (IndexShape{.heads = 64, .dim = 128, .rope_dim = 16, .tokens = 2048}));
  EXPECT_TRUE(!spec.layers[2].moe && spec.layers[3].moe) << "three layers are dense";
  EXPECT_EQ(spec.moe.groups, 8);
  EXPECT_EQ(spec.moe.groups_per_token, 4);
  EXPECT_EQ(spec.moe.scale, 2.5f);
  config["layer_types"] = std::vector<std::string>(5, "deepseek_sparse_attention");
  config["mlp_layer_types"] = {"sparse", "dense", "dense", "sparse", "dense"};
  const ModelSpec listed = Good(config);
  EXPECT_TRUE(listed.layers[0].moe && !listed.layers[1].moe && listed.layers[3].moe);
}

TEST_F(SparseModel, NamesFileAndKeyOfABadMember) {
  const std::vector<std::pair<std::string, std::pair<Json, std::string>>> cases = {
      {"index_n_heads", {0, "index_n_heads is 0; it must be between 1"}},
      {"index_n_heads", {"x", "index_n_heads is \"x\"; it must be an integer"}},
      {"index_head_dim", {8, "rotated dimension of index heads is 16; it must be between 2 and 8"}},
      {"index_head_dim", {1025, "index_head_dim is 1025; it must be between 1 and 1024"}},
      {"index_topk", {0, "index_topk is 0; it must be between 1"}},
      {"q_lora_rank", {nullptr, "q_lora_rank is null; deepseek_v32 needs a number"}},
      {"max_position_embeddings", {1 << 25, "context length with an index is 33554432"}},
      {"layer_types",
       {{"indexed_attention", "full_attention", "indexed_attention"},
        "layer_types has full_attention; only indexed_attention and deepseek_sparse_attention"}},
      {"mlp_layer_types", {Json{"dense"}, "mlp_layer_types has 1 entries for 3 layers"}},
      {"mlp_layer_types",
       {{"dense", "moe", "dense"}, "mlp_layer_types has moe; dense and sparse are supported"}},
      {"scoring_func", {"softmax", "scoring_func is softmax; supported: sigmoid"}},
  };
  for (const auto& [key, bad] : cases) {
    const std::string error = ErrorWith(key, bad.first);
    EXPECT_THAT(error, HasSubstr(bad.second)) << key;
    EXPECT_THAT(error, HasSubstr("config.json: ")) << key;
  }
}

TEST_F(SparseModel, NamesATensorThatIsMissingOrHasAnotherShape) {
  const HeldTensors all = TensorsIn(kPath);
  for (const char* name :
       {"wq_b.weight", "wk.weight", "k_norm.weight", "k_norm.bias", "weights_proj.weight"}) {
    SCOPED_TRACE(name);
    const std::string tensor = std::string("model.layers.2.self_attn.indexer.") + name;
    HeldTensors tensors = all;
    ASSERT_EQ(tensors.erase(tensor), 1u);
    const auto without = OpenWith(Tiny("deepseek_v32"), tensors);
    ASSERT_TRUE(without.ok()) << Message(without.status());
    EXPECT_THAT(Message(StepRunner::Create(without->spec, *without->weights).status()),
                HasSubstr("tensor " + tensor + " is missing"));
    HeldTensor& other = tensors[tensor];
    other = all.at(tensor);
    other.shape[0] /= 2;
    other.bytes.resize(other.bytes.size() / 2);
    const auto halved = OpenWith(Tiny("deepseek_v32"), tensors);
    ASSERT_TRUE(halved.ok()) << Message(halved.status());
    EXPECT_THAT(Message(StepRunner::Create(halved->spec, *halved->weights).status()),
                HasSubstr("tensor " + tensor + " has shape ["));
  }
}

// Rows select among more than 48 tokens from position 48 on.
TEST_F(SparseModel, RowsHaveTheSameBitsInEveryChunk) {
  const OpenedModel model = Open();
  const std::vector<Logits> whole = LogitsOf(model, 120, 120);
  for (const size_t chunk : {1, 7, 16, 48, 49, 100}) {
    EXPECT_EQ(LogitsOf(model, 120, chunk), whole) << "chunks of " << chunk;
  }
}

// While the index selects all tokens, attention has the bits of a model without one.
TEST_F(SparseModel, AnIndexOfAllTokensChangesNoBit) {
  OpenedModel model = Open();
  model.spec.latent.index.tokens = 120;
  const std::vector<Logits> all = LogitsOf(model, 120, 50);
  model.spec.latent.index = {};
  EXPECT_EQ(LogitsOf(model, 120, 50), all);
}

TEST_F(SparseModel, EachFieldCounts) {
  const OpenedModel model = Open();
  const std::vector<std::pair<std::string, std::function<void(IndexShape&)>>> changes = {
      {"no index", [](IndexShape& index) { index = {}; }},
      {"tokens", [](IndexShape& index) { index.tokens = 20; }},
  };
  const Logits right = LogitsOf(model, 140, 140).back();
  for (const auto& [what, change] : changes) {
    OpenedModel other = Open();
    change(other.spec.latent.index);
    EXPECT_NE(other.spec.ToString(), model.spec.ToString()) << what;
    EXPECT_NE(LogitsOf(other, 140, 140).back(), right) << what;
  }
  for (const auto& change :
       std::vector<std::function<void(IndexShape&)>>{[](IndexShape& index) { ++index.heads; },
                                                     [](IndexShape& index) { ++index.dim; },
                                                     [](IndexShape& index) { ++index.rope_dim; }}) {
    ModelSpec other = model.spec;
    change(other.latent.index);
    EXPECT_NE(other.ToString(), model.spec.ToString());
  }
}

TEST_F(SparseModel, TellsWhatTheKvTakesAndWhatABackendNeeds) {
  const OpenedModel model = Open();
  EXPECT_EQ(model.spec.KvBytesPerToken(2), 3u * (32 + 16 + 32) * 2);
  EXPECT_THAT(VariantsOf(model.spec), testing::Contains(OpVariant::kSparseAttention));
  EXPECT_THAT(VariantsOf(model.spec), testing::Contains(OpVariant::kLayerNorm));
  std::string text;
  for (const DescriptionLine& line : DescribeModel(model).lines) {
    text += line.label + ": " + line.value + "\n";
  }
  EXPECT_THAT(text, HasSubstr(", the 48 tokens that an index of 24 heads of 32 selects\n"));
  EXPECT_THAT(text, HasSubstr("KV per token: 480 bytes at 16 bits"));
}

TEST_F(SparseModel, TheBackendRefusesIndexKeysThatItCannotStore) {
  ModelSpec spec = Good(Tiny("deepseek_v32"));
  spec.latent.index.dim = 36;
  EXPECT_EQ(Message(StepRunner::Create(spec, DummyWeights(1)).status()),
            "the model cannot run on cpu: the index key has 36 numbers; the CPU backend needs a "
            "multiple of 8");
}

}  // namespace
}  // namespace baton
