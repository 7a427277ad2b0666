#include <functional>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/mapped_file.h"
#include "common/model/decoder.h"
#include "common/model/decoder_weights.h"
#include "common/model/open_model.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/safetensors_writer.h"

// The checks of the model before the decoder loads weights: by the backend, and of the weights.
namespace baton {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Refuses every model, or every weight, and records the shape that it was given.
class RefusingOps final : public Ops {
 public:
  explicit RefusingOps(bool takes_models = false) : takes_models_(takes_models) {}

  Status CheckModel(const ModelShape& shape) const override {
    asked = shape;
    if (takes_models_) return OkStatus();
    return Status(StatusCode::kUnimplemented, "it is too large");
  }
  Device& device() override { return device_; }
  DType activation_dtype() const override { return DType::kF32; }
  KvNeeds kv_needs() const override { return {.k_dim_major = true}; }
  bool supports_fp8_kv() const override { return true; }
  StatusOr<std::unique_ptr<Matrix>> LoadMatrix(std::span<const HostMatrix>) override {
    return NotReached();
  }
  StatusOr<std::unique_ptr<Matrix>> LoadGateUp(const HostMatrix&, const HostMatrix&) override {
    return NotReached();
  }
  StatusOr<std::unique_ptr<Vector>> LoadVector(std::span<const float>) override {
    return NotReached();
  }
  StatusOr<PlacedValues> PlaceValues(std::span<const ValueUse>) override { return NotReached(); }
  Status BeginStep(const StepInput&, const KvView&) override { return NotReached(); }
  Status IssueStep() override { return NotReached(); }
  void Embed(const Matrix&, int32_t, const Tensor&) override {}
  void RmsNorm(const Tensor&, const Vector&, float, const Tensor&) override {}
  void Add(const Tensor&, const Tensor&) override {}
  void AddRmsNorm(const Tensor&, const Tensor&, const Vector&, float, const Tensor&) override {}
  void MatMul(const Tensor&, const Matrix&, const Vector*, const Tensor&) override {}
  void MatMulSiluMul(const Tensor&, const Matrix&, const Vector*, const Tensor&) override {}
  void Experts(const Tensor&, const ExpertArgs&, const Tensor&) override {}
  void RopeAndWriteKv(const Tensor&, const HeadShape&, const RopeArgs&, int32_t) override {}
  void Attention(const Tensor&, const AttentionArgs&, const Tensor&) override {}
  void GatherLogitRows(const Tensor&, const Tensor&) override {}
  void Sample(const Tensor&, std::span<const SamplingRow>, std::span<SampledToken>) override {}
  void CopyRows(const Tensor&, std::span<const std::span<float>>) override {}
  Status CopyBlocks(const KvView&, std::span<const BlockCopy>) override { return NotReached(); }

  mutable std::optional<ModelShape> asked;

 private:
  static Status NotReached() { return Status(StatusCode::kInternal, "a refused model was loaded"); }

  const bool takes_models_;
  CpuDevice device_;
};

TEST(BackendCheck, ComesBeforeTheWeightsAndSaysAllThatABackendMayLimit) {
  for (const std::string family : {"llama_gqa", "qwen3_moe"}) {
    const auto model = OpenModel(BATON_TEST_DATA "/tiny/" + family);
    ASSERT_TRUE(model.ok()) << model.status();
    const ModelSpec& spec = model->spec;
    RefusingOps ops;
    const auto decoder = Decoder::Load(
        spec, *model->weights, ops, {.max_rows = 8, .max_logit_rows = 8, .fp8_kv = true});
    EXPECT_EQ(decoder.status().code(), StatusCode::kUnimplemented);
    EXPECT_EQ(Message(decoder.status()), "the model cannot run on cpu: it is too large");
    ASSERT_TRUE(ops.asked.has_value());
    EXPECT_EQ(ops.asked->vocabulary, spec.vocab);
    EXPECT_EQ(ops.asked->hidden, spec.hidden);
    EXPECT_EQ(ops.asked->heads, spec.head_shape());
    EXPECT_TRUE(ops.asked->fp8_kv);
    if (family == "llama_gqa") {
      EXPECT_EQ(ops.asked->experts, 0);
    } else {
      EXPECT_EQ(ops.asked->experts, spec.moe.experts);
      EXPECT_EQ(ops.asked->experts_per_token, spec.moe.experts_per_token);
      EXPECT_EQ(ops.asked->expert_width, spec.moe.intermediate);
    }
  }
}

TEST(BackendCheck, SaysWhatTheModelNeedsBesidesTheUsualOps) {
  const auto model = OpenModel(BATON_TEST_DATA "/tiny/olmo2");
  ASSERT_TRUE(model.ok()) << model.status();
  RefusingOps ops;
  EXPECT_FALSE(
      Decoder::Load(model->spec, *model->weights, ops, {.max_rows = 8, .max_logit_rows = 8}).ok());
  ASSERT_TRUE(ops.asked.has_value());
  EXPECT_THAT(ops.asked->variants,
              testing::ElementsAre(OpVariant::kProjectionNorm, OpVariant::kResidualGemm));
}

// A model whose files lack a weight, or have it in another shape or type, is refused before the
// first weight is packed, however late it would be loaded, and on every rank.
TEST(WeightCheck, ComesBeforeTheFirstWeightIsPacked) {
  const auto model = OpenModel(BATON_TEST_DATA "/tiny/qwen3_moe");
  ASSERT_TRUE(model.ok()) << model.status();
  RefusingOps ops(/*takes_models=*/true);
  const auto error = [&](const ModelSpec& spec, const WeightSource& weights) {
    const auto decoder =
        Decoder::Load(spec, weights, ops, {.max_rows = 8, .max_logit_rows = 8, .fp8_kv = true});
    return std::string(Message(decoder.status()));
  };
  EXPECT_EQ(error(model->spec, *model->weights), "a refused model was loaded");

  const TemporaryFolder folder;
  folder.Write("config.json", *ReadFile(BATON_TEST_DATA "/tiny/qwen3_moe/config.json"));
  const HeldTensors whole = TensorsIn(BATON_TEST_DATA "/tiny/qwen3_moe");
  const auto error_with = [&](const std::function<void(HeldTensors&)>& change) {
    HeldTensors tensors = whole;
    change(tensors);
    folder.Write("model.safetensors", SafetensorsFileOf(tensors));
    const auto changed = OpenModel(folder.path());
    return changed.ok() ? error(changed->spec, *changed->weights)
                        : std::string(Message(changed.status()));
  };
  EXPECT_THAT(
      error_with([](HeldTensors& tensors) { tensors.erase("lm_head.weight"); }),
      AllOf(HasSubstr("tensor lm_head.weight is missing"), HasSubstr("tie_word_embeddings: true")));
  const std::string last = fmt::format("model.layers.{}.", model->spec.layer_count() - 1);
  EXPECT_THAT(error_with([&](HeldTensors& tensors) {
                tensors.erase(last + "mlp.experts.3.down_proj.weight");
              }),
              HasSubstr("experts.3.down_proj.weight is missing"));
  EXPECT_THAT(error_with([&](HeldTensors& tensors) {
                HeldTensor& norm = tensors.at(last + "post_attention_layernorm.weight");
                norm.shape = {norm.shape[0] / 2, 2};
              }),
              HasSubstr("post_attention_layernorm.weight has shape"));
}

// Tensors that have the weights of all experts of a layer.
TEST(WeightCheck, NamesTheTensorOfGptOssThatIsMissingOrOfAnotherShape) {
  const std::string path = BATON_TEST_DATA "/tiny/gpt_oss";
  const TemporaryFolder folder;
  folder.Write("config.json", *ReadFile(path + "/config.json"));
  const HeldTensors whole = TensorsIn(path);
  const auto error_with = [&](const HeldTensors& tensors) {
    folder.Write("model.safetensors", SafetensorsFileOf(tensors));
    const auto changed = OpenModel(folder.path());
    if (!changed.ok()) return std::string(Message(changed.status()));
    RefusingOps ops(/*takes_models=*/true);
    return std::string(Message(
        Decoder::Load(changed->spec, *changed->weights, ops, {.max_rows = 8, .max_logit_rows = 8})
            .status()));
  };
  struct Tensor {
    std::string name;
    std::vector<int64_t> other_shape;
    std::string error;
  };
  for (const Tensor& tensor :
       std::vector<Tensor>{{"self_attn.sinks", {4, 2}, "has shape [4, 2]; expected [8]"},
                           {"mlp.router.bias", {3, 2}, "has shape [3, 2]; expected [6]"},
                           {"mlp.experts.gate_up_proj",
                            {6, 128, 64},
                            "has shape [6, 128, 64]; expected [64, 128] for each of 6 experts"},
                           {"mlp.experts.gate_up_proj",
                            {3, 64, 256},
                            "has shape [3, 64, 256]; expected [64, 128] for each of 6 experts"},
                           {"mlp.experts.down_proj",
                            {2, 192, 64},
                            "has shape [2, 192, 64]; expected [64, 64] for each of 6 experts"},
                           {"mlp.experts.gate_up_proj_bias",
                            {768},
                            "has shape [768]; expected [128] for each of 6 experts"},
                           {"mlp.experts.down_proj_bias",
                            {3, 128},
                            "has shape [3, 128]; expected [64] for each of 6 experts"}}) {
    const std::string name = "model.layers.3." + tensor.name;
    HeldTensors tensors = whole;
    tensors.at(name).shape = tensor.other_shape;
    EXPECT_THAT(error_with(tensors), HasSubstr("tensor " + name + " " + tensor.error));
    tensors.erase(name);
    EXPECT_THAT(error_with(tensors), HasSubstr("tensor " + name + " is missing"));
  }
  // Another number of experts than the configuration states.
  for (const std::string part : {"gate_up_proj", "gate_up_proj_bias", "down_proj_bias"}) {
    const std::string name = "model.layers.3.mlp.experts." + part;
    HeldTensors tensors = whole;
    HeldTensor& tensor = tensors.at(name);
    tensor.bytes.resize(tensor.bytes.size() / 6 * 5);
    tensor.shape[0] = 5;
    EXPECT_THAT(error_with(tensors),
                AllOf(HasSubstr("tensor " + name), HasSubstr("for each of 6 experts")));
  }
}

// The first of two pipeline stages does not load the head, but is useless without it.
TEST(WeightCheck, IsOfTheWholeModelOnEachRank) {
  const auto model = OpenModel(BATON_TEST_DATA "/tiny/llama_gqa");
  ASSERT_TRUE(model.ok()) << model.status();
  const TemporaryFolder folder;
  folder.Write("config.json", *ReadFile(BATON_TEST_DATA "/tiny/llama_gqa/config.json"));
  HeldTensors tensors = TensorsIn(BATON_TEST_DATA "/tiny/llama_gqa");
  tensors.erase("lm_head.weight");
  folder.Write("model.safetensors", SafetensorsFileOf(tensors));
  const auto headless = OpenModel(folder.path());
  ASSERT_TRUE(headless.ok()) << headless.status();
  RefusingOps ops(/*takes_models=*/true);
  const auto loaded =
      LoadDecoderWeights(headless->spec, *headless->weights, ops, {.slice = {.layers = {{0, 1}}}});
  EXPECT_THAT(std::string(Message(loaded.status())), HasSubstr("lm_head.weight is missing"));
}

}  // namespace
}  // namespace baton
