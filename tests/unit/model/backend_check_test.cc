#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "common/model/decoder.h"
#include "common/model/open_model.h"
#include "kernels/cpu/cpu_device.h"

// The check of the model by the backend, before the decoder loads weights.
namespace baton {
namespace {

// Refuses every model and records the shape that it was given.
class RefusingOps final : public Ops {
 public:
  Status CheckModel(const ModelShape& shape) const override {
    asked = shape;
    return Status(StatusCode::kUnimplemented, "it is too large");
  }
  Device& device() override { return device_; }
  DType activation_dtype() const override { return DType::kF32; }
  bool k_dim_major() const override { return true; }
  bool supports_fp8_kv() const override { return true; }
  int32_t block_token_multiple() const override { return 1; }
  StatusOr<std::unique_ptr<Matrix>> LoadMatrix(std::span<const HostMatrix>) override {
    return NotReached();
  }
  StatusOr<std::unique_ptr<Matrix>> LoadGateUp(const HostMatrix&, const HostMatrix&) override {
    return NotReached();
  }
  StatusOr<std::unique_ptr<Vector>> LoadVector(std::span<const float>) override {
    return NotReached();
  }
  Status BeginStep(const StepInput&, const KvView&) override { return NotReached(); }
  Status IssueStep() override { return NotReached(); }
  void Embed(const Matrix&, int32_t, const Tensor&) override {}
  void RmsNorm(const Tensor&, const Vector&, float, const Tensor&) override {}
  void AddRmsNorm(const Tensor&, const Tensor&, const Vector&, float, const Tensor&) override {}
  void MatMul(const Tensor&, const Matrix&, const Vector*, const Tensor&) override {}
  void MatMulSiluMul(const Tensor&, const Matrix&, const Vector*, const Tensor&) override {}
  void Experts(const Tensor&, const ExpertArgs&, const Tensor&) override {}
  void RopeAndWriteKv(const Tensor&, const HeadShape&, const RopeArgs&, int32_t) override {}
  void Attention(const Tensor&, const AttentionArgs&, const Tensor&) override {}
  void GatherLogitRows(const Tensor&, const Tensor&) override {}
  void Sample(const Tensor&, std::span<const SamplingRow>, std::span<SampledToken>) override {}
  Status CopyBlocks(const KvView&, std::span<const BlockCopy>) override { return NotReached(); }

  mutable std::optional<ModelShape> asked;

 private:
  static Status NotReached() { return Status(StatusCode::kInternal, "a refused model was loaded"); }

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

}  // namespace
}  // namespace baton
