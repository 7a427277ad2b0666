#include "cli/model_check.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/base/mapped_file.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/safetensors_writer.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using Json = nlohmann::json;

std::string Data(const std::string& name) {
  return std::string(BATON_TEST_DATA) + "/" + name;
}

HeldTensor Zeros(std::vector<int64_t> shape) {
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  return {DType::kBF16, std::move(shape), std::vector<std::byte>(2 * count)};
}

// A Llama of one layer, whose files a test changes.
class ModelCheckTest : public testing::Test {
 protected:
  ModelCheckTest() {
    config_ = {{"model_type", "llama"},
               {"architectures", {"LlamaForCausalLM"}},
               {"vocab_size", 1024},
               {"hidden_size", 256},
               {"intermediate_size", 256},
               {"num_hidden_layers", 1},
               {"num_attention_heads", 4},
               {"num_key_value_heads", 2},
               {"max_position_embeddings", 512},
               {"tie_word_embeddings", true}};
    const std::string layer = "model.layers.0.";
    tensors_["model.embed_tokens.weight"] = Zeros({1024, 256});
    tensors_["model.norm.weight"] = Zeros({256});
    tensors_[layer + "input_layernorm.weight"] = Zeros({256});
    tensors_[layer + "post_attention_layernorm.weight"] = Zeros({256});
    tensors_[layer + "self_attn.q_proj.weight"] = Zeros({256, 256});
    tensors_[layer + "self_attn.k_proj.weight"] = Zeros({128, 256});
    tensors_[layer + "self_attn.v_proj.weight"] = Zeros({128, 256});
    tensors_[layer + "self_attn.o_proj.weight"] = Zeros({256, 256});
    tensors_[layer + "mlp.gate_proj.weight"] = Zeros({256, 256});
    tensors_[layer + "mlp.up_proj.weight"] = Zeros({256, 256});
    tensors_[layer + "mlp.down_proj.weight"] = Zeros({256, 256});
    const Json golden = Json::parse(*ReadFile(Data("text/hf/qwen2.json")));
    folder_.Write("tokenizer.json", golden["tokenizer"].dump());
    folder_.Write("chat_template.jinja", *ReadFile(Data("text/templates/qwen25_style.jinja")));
  }

  ModelCheck Check() const {
    folder_.Write("config.json", config_.dump());
    folder_.Write("model.safetensors", SafetensorsFileOf(tensors_));
    return CheckModelFiles(folder_.path(), "");
  }
  static const DeviceCheck& On(const ModelCheck& check, const std::string& device) {
    for (const DeviceCheck& one : check.devices) {
      if (one.device == device) return one;
    }
    BATON_CHECK(false, "no device {}", device);
  }

  const TemporaryFolder folder_;
  Json config_;
  HeldTensors tensors_;
};

TEST_F(ModelCheckTest, TellsWhatAModelNeedsAndWhereItRuns) {
  const ModelCheck check = Check();
  EXPECT_TRUE(check.runs()) << TextOf(check);
  EXPECT_THAT(check.notes, IsEmpty());
  EXPECT_EQ(check.format, "Hugging Face");
  EXPECT_EQ(check.family, "llama");
  EXPECT_EQ(check.tensors, "11 bf16");
  EXPECT_EQ(check.parameters, 1024 * 256 + 3 * 256 + 5 * 256 * 256 + 2 * 128 * 256);
  EXPECT_EQ(check.weight_bytes, 2 * static_cast<size_t>(check.parameters));
  EXPECT_EQ(check.kv_bytes_per_token, size_t{2} * 2 * 2 * 64);
  EXPECT_THAT(check.tensor_parallel, ElementsAre(1, 2, 4));
  EXPECT_EQ(check.max_stages, 1);
  EXPECT_EQ(check.tool_calls, "hermes");
  EXPECT_THAT(check.chat_template, HasSubstr("chat_template.jinja"));
  EXPECT_THAT(On(check, "cpu").kv, ElementsAre("f16", "bf16", "f32"));
  EXPECT_THAT(On(check, "sm_80").weights, ElementsAre("bf16"));
  EXPECT_THAT(On(check, "sm_90").weights, ElementsAre("bf16", "fp8"));
  EXPECT_THAT(On(check, "sm_90").kv, ElementsAre("bf16", "fp8"));
  EXPECT_THAT(TextOf(check), AllOf(HasSubstr(" runs\n"), HasSubstr("1, 2, 4; GPUs that")));
  const Json json = Json::parse(JsonOf(check));
  EXPECT_EQ(json["runs"], true);
  EXPECT_EQ(json["devices"].size(), check.devices.size());
}

TEST_F(ModelCheckTest, NamesAMissingTensorAndOneOfAnotherShape) {
  const HeldTensors whole = tensors_;
  tensors_.erase("model.layers.0.mlp.up_proj.weight");
  EXPECT_THAT(Check().problems,
              ElementsAre(HasSubstr("tensor model.layers.0.mlp.up_proj.weight is missing")));
  tensors_ = whole;
  tensors_["model.layers.0.self_attn.k_proj.weight"] = Zeros({64, 256});
  EXPECT_THAT(Check().problems,
              ElementsAre(AllOf(HasSubstr("self_attn.k_proj.weight has shape [64, 256]"),
                                HasSubstr("expected [128, 256]"))));
  tensors_ = whole;
  tensors_["model.layers.0.self_attn.q_norm.weight"] = Zeros({64});
  const ModelCheck extra = Check();
  EXPECT_TRUE(extra.runs());
  EXPECT_THAT(extra.notes, ElementsAre(HasSubstr("self_attn.q_norm.weight is not loaded")));
}

TEST_F(ModelCheckTest, NamesMissingFiles) {
  std::filesystem::remove(folder_.path() + "/tokenizer.json");
  EXPECT_THAT(Check().problems, ElementsAre(HasSubstr("has no tokenizer.json")));
  folder_.Write("tokenizer.model", "x");
  EXPECT_THAT(Check().problems, ElementsAre(HasSubstr("no model of SentencePiece")));
  // What a worker reads is no missing file.
  folder_.Write("tiktoken.model", "YQ== 0\n");
  EXPECT_THAT(Check().problems, ElementsAre(HasSubstr("it must be TikTokenTokenizer")));
  std::filesystem::remove(folder_.path() + "/model.safetensors");
  const ModelCheck none = CheckModelFiles(folder_.path(), "");
  EXPECT_THAT(none.problems, SizeIs(2));
  EXPECT_THAT(none.problems, Contains(HasSubstr("safetensors")));
  EXPECT_THAT(CheckModelFiles(folder_.path() + "/nothing", "").problems,
              ElementsAre(HasSubstr("does not exist")));
}

TEST_F(ModelCheckTest, AModelWithoutAChatTemplateServesText) {
  std::filesystem::remove(folder_.path() + "/chat_template.jinja");
  const ModelCheck check = Check();
  EXPECT_TRUE(check.runs());
  EXPECT_THAT(check.notes, ElementsAre(HasSubstr("has no chat template")));
  EXPECT_THAT(TextOf(check), HasSubstr("chat template      none"));
}

TEST_F(ModelCheckTest, NamesTheNearestFamily) {
  for (const auto& [architecture, nearest] : std::vector<std::pair<std::string, std::string>>{
           {"Qwen3VLMoeForConditionalGeneration", "the nearest is Qwen3MoeForCausalLM"},
           {"Glm4MoeLiteForCausalLM", "the nearest is Glm4MoeForCausalLM"},
           {"Olmo4ForCausalLM", "the nearest is Olmo"},
           {"DeepseekV4ForCausalLM", "the nearest is DeepseekV"}}) {
    config_["architectures"] = {architecture};
    EXPECT_THAT(
        Check().problems,
        ElementsAre(AllOf(HasSubstr(architecture + " is not supported"), HasSubstr(nearest))));
  }
  config_["architectures"] = {"BertForMaskedLM"};
  EXPECT_THAT(Check().problems, ElementsAre(Not(HasSubstr("the nearest"))));
}

// Of quantised weights, not the words in which they are packed: embedding and head, attention,
// feed-forward and norms of two layers.
TEST_F(ModelCheckTest, CountsTheParametersOfQuantizedModels) {
  constexpr int64_t kHidden = 128;
  constexpr int64_t kLayer =
      kHidden * kHidden * 2 + kHidden * 64 * 2 + kHidden * 256 * 3 + kHidden * 2;
  constexpr int64_t kAll = kHidden * 512 * 2 + kLayer * 2 + kHidden;
  for (const std::string folder : {"llama_gptq_int4", "llama_awq_int4", "llama_ct_nvfp4"}) {
    EXPECT_EQ(CheckModelFiles(Data("tiny/" + folder), "").parameters, kAll) << folder;
  }
}

TEST_F(ModelCheckTest, NamesAQuantizationThatIsNotRead) {
  config_["quantization_config"] = {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}};
  EXPECT_THAT(Check().problems,
              ElementsAre(AllOf(HasSubstr("quantization_config: quant_method is bitsandbytes"),
                                HasSubstr("supported is gptq, awq"),
                                HasSubstr("or as a GGUF file"))));
  config_["quantization_config"] = 4;
  EXPECT_THAT(Check().problems, ElementsAre(HasSubstr("quantization_config")));
}

// GPUs refuse what the kernel table lacks; the CPU runs the model.
TEST_F(ModelCheckTest, TellsWhyADeviceDoesNotRunAModel) {
  const ModelCheck check = CheckModelFiles(Data("tiny/deepseek_v32"), "");
  EXPECT_THAT(On(check, "cpu").refused, IsEmpty());
  EXPECT_THAT(On(check, "sm_90").refused, HasSubstr("the CUDA backend does not have"));
  EXPECT_THAT(TextOf(check), HasSubstr("does not run\n"));
}

TEST_F(ModelCheckTest, TellsTheMemoryOfStates) {
  const ModelCheck check = CheckModelFiles(Data("tiny/nemotron_h"), "");
  EXPECT_THAT(On(check, "sm_90").refused, IsEmpty());
  EXPECT_GT(check.state_bytes, 0u);
  EXPECT_THAT(TextOf(check), HasSubstr("memory of states"));
}

}  // namespace
}  // namespace baton
