#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/model/describe_model.h"
#include "tests/unit/model/recurrent_fixture.h"

// The files of Qwen 3.5, which have the weights of Qwen3-Next in tensors of other names and orders.
// tiny_golden_test compares its models with transformers.
namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

// Rows of a matrix.
struct Rows {
  size_t first = 0;
  size_t count = 0;
};

HeldTensor Select(const HeldTensor& from, const std::vector<Rows>& ranges) {
  const size_t row_bytes = from.bytes.size() / static_cast<size_t>(from.shape[0]);
  HeldTensor to = {from.dtype, from.shape, {}};
  to.shape[0] = 0;
  for (const Rows& rows : ranges) {
    const auto begin = from.bytes.begin() + static_cast<ptrdiff_t>(rows.first * row_bytes);
    to.bytes.insert(to.bytes.end(), begin, begin + static_cast<ptrdiff_t>(rows.count * row_bytes));
    to.shape[0] += static_cast<int64_t>(rows.count);
  }
  return to;
}

void Append(const HeldTensor& from, HeldTensor& to) {
  to.bytes.insert(to.bytes.end(), from.bytes.begin(), from.bytes.end());
}

class Qwen35Model : public RecurrentModelTest {
 protected:
  Qwen35Model() : RecurrentModelTest("qwen3_next"), shape_(Open().spec.recurrent.shape) {}

  // The rows of all key heads that stand `offset` rows behind the first one of a head, which has
  // `of_head` rows.
  std::vector<Rows> OfHeads(size_t offset, size_t count, size_t of_head) const {
    std::vector<Rows> rows;
    for (int32_t head = 0; head < shape_.key_heads; ++head) {
      rows.push_back({static_cast<size_t>(head) * of_head + offset, count});
    }
    return rows;
  }

  // The tiny model of Qwen3-Next in the tensors of Qwen 3.5.
  HeldTensors Renamed() const {
    HeldTensors tensors = TensorsIn(Path());
    for (int layer = 0; layer < 4; ++layer) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      if (tensors.contains(prefix + "linear_attn.in_proj_qkvz.weight")) {
        DivideInputs(prefix + "linear_attn.", tensors);
      }
      StackExperts(prefix + "mlp.experts.", tensors);
    }
    return tensors;
  }

  Json Config() const {
    Json config = Tiny("qwen3_next");
    config["model_type"] = "qwen3_5_moe_text";
    config["architectures"] = {"Qwen3_5MoeForCausalLM"};
    config.erase("intermediate_size");
    config.erase("norm_topk_prob");
    return config;
  }

  StatusOr<OpenedModel> OpenFiles(const Json& config, const HeldTensors& tensors) const {
    folder_.Write("config.json", config.dump());
    folder_.Write("model.safetensors", SafetensorsFileOf(tensors));
    return OpenModel(folder_.path());
  }

  // The model has the logits of that of Qwen3-Next, bit for bit, and reads all tensors.
  void CheckLogits(const StatusOr<OpenedModel>& model) const {
    ASSERT_TRUE(model.ok()) << Message(model.status());
    const auto tokens = Tokens(60);
    const auto want = RunnerOf(Open())->RunAll(0, tokens, tokens.size());
    const auto runner = StepRunner::Create(model->spec, *model->weights);
    ASSERT_TRUE(runner.ok()) << Message(runner.status());
    EXPECT_EQ((*runner)->RunAll(0, tokens, tokens.size()), want);
  }

  const RecurrentShape shape_;

 private:
  void DivideInputs(const std::string& prefix, HeldTensors& tensors) const {
    const auto keys = static_cast<size_t>(shape_.key_dim);
    const auto group = static_cast<size_t>(shape_.group());
    const size_t values = group * static_cast<size_t>(shape_.value_dim);
    const size_t of_head = 2 * keys + 2 * values;
    const HeldTensor inputs = tensors.extract(prefix + "in_proj_qkvz.weight").mapped();
    std::vector<Rows> qkv = OfHeads(0, keys, of_head);
    for (const auto& part : {OfHeads(keys, keys, of_head), OfHeads(2 * keys, values, of_head)}) {
      qkv.insert(qkv.end(), part.begin(), part.end());
    }
    tensors[prefix + "in_proj_qkv.weight"] = Select(inputs, qkv);
    tensors[prefix + "in_proj_z.weight"] =
        Select(inputs, OfHeads(2 * keys + values, values, of_head));
    const HeldTensor gates = tensors.extract(prefix + "in_proj_ba.weight").mapped();
    tensors[prefix + "in_proj_b.weight"] = Select(gates, OfHeads(0, group, 2 * group));
    tensors[prefix + "in_proj_a.weight"] = Select(gates, OfHeads(group, group, 2 * group));
  }

  static void StackExperts(const std::string& prefix, HeldTensors& tensors) {
    constexpr int kExperts = 8;
    HeldTensor gate_up;
    HeldTensor down;
    for (int expert = 0; expert < kExperts; ++expert) {
      const auto take = [&](const std::string& name) {
        return tensors.extract(fmt::format("{}{}.{}.weight", prefix, expert, name)).mapped();
      };
      const HeldTensor gate = take("gate_proj");
      const HeldTensor one = take("down_proj");
      Append(gate, gate_up);
      Append(take("up_proj"), gate_up);
      Append(one, down);
      gate_up.shape = {kExperts, 2 * gate.shape[0], gate.shape[1]};
      down.shape = {kExperts, one.shape[0], one.shape[1]};
    }
    tensors[prefix + "gate_up_proj"] = std::move(gate_up);
    tensors[prefix + "down_proj"] = std::move(down);
  }
};

TEST_F(Qwen35Model, HasTheLogitsOfQwen3NextWithTheSameWeights) {
  const auto model = OpenFiles(Config(), Renamed());
  CheckLogits(model);
  EXPECT_EQ(model->spec.family, ModelFamily::kQwen35Moe);
  EXPECT_EQ(model->spec.intermediate, 0);
  EXPECT_THAT(DescribeUnread(model->spec, *model->weights), IsEmpty());
}

TEST_F(Qwen35Model, TheTextModelOfAModelWithImagesIsServed) {
  HeldTensors tensors;
  for (auto& [name, tensor] : Renamed()) {
    const bool head = name == "lm_head.weight";
    tensors[head ? name : "model.language_model." + name.substr(std::string("model.").size())] =
        std::move(tensor);
  }
  tensors["model.visual.merger.norm.weight"] = {DType::kF32, {1}, std::vector<std::byte>(4)};
  Json text = Config();
  text.erase("architectures");
  text["tie_word_embeddings"] = true;  // the head is that of the whole model
  const Json whole = {{"model_type", "qwen3_5_moe"},
                      {"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
                      {"tie_word_embeddings", false},
                      {"text_config", text}};
  const auto model = OpenFiles(whole, tensors);
  CheckLogits(model);
  EXPECT_THAT(DescribeUnread(model->spec, *model->weights),
              ElementsAre(HasSubstr("model.visual.merger.norm.weight is not loaded")));
}

TEST_F(Qwen35Model, NamesATensorThatIsMissingOrOfAnotherShape) {
  for (const std::string name : {"linear_attn.in_proj_qkv.weight",
                                 "linear_attn.in_proj_z.weight",
                                 "linear_attn.in_proj_b.weight",
                                 "linear_attn.in_proj_a.weight",
                                 "mlp.experts.gate_up_proj"}) {
    const std::string tensor = "model.layers.1." + name;
    HeldTensors tensors = Renamed();
    const HeldTensor good = tensors.extract(tensor).mapped();
    const auto error = [&] {
      const auto model = OpenFiles(Config(), tensors);
      return std::string(Message(StepRunner::Create(model->spec, *model->weights).status()));
    };
    EXPECT_THAT(error(), HasSubstr(tensor + " is missing"));
    tensors[tensor] = Select(good, {{0, static_cast<size_t>(good.shape[0]) - 1}});
    EXPECT_THAT(error(), HasSubstr(tensor + " has shape"));
  }
}

TEST_F(Qwen35Model, ADenseModelHasNoExperts) {
  Json config = Tiny("qwen3_next");
  config["architectures"] = {"Qwen3_5ForCausalLM"};
  for (const char* key :
       {"num_experts", "num_experts_per_tok", "shared_expert_intermediate_size"}) {
    config.erase(key);
  }
  const ModelSpec spec = Good(config);
  EXPECT_EQ(spec.family, ModelFamily::kQwen35);
  EXPECT_EQ(spec.intermediate, 112);
  EXPECT_TRUE(std::ranges::none_of(spec.layers, &LayerSpec::moe));
  EXPECT_TRUE(spec.recurrent.inputs_by_kind && spec.recurrent.gates_by_kind);
}

}  // namespace
}  // namespace baton
