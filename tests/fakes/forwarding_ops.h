#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "kernels/ops.h"

namespace baton {

// Ops that pass everything on, for those that change a part. What only a backend with a device of
// its own says (queues_steps, PaddedRows, …) has its default.
class ForwardingOps : public Ops {
 public:
  explicit ForwardingOps(std::unique_ptr<Ops> ops) : ops_(std::move(ops)) {}

  Device& device() override { return ops_->device(); }
  DType activation_dtype() const override { return ops_->activation_dtype(); }
  KvNeeds kv_needs() const override { return ops_->kv_needs(); }
  Status CheckModel(const ModelShape& shape) const override { return ops_->CheckModel(shape); }
  Exchange* exchange() override { return ops_->exchange(); }
  FamilyOps* family_ops() override { return ops_->family_ops(); }
  LatentOps* latent_ops() override { return ops_->latent_ops(); }
  RecurrentOps* recurrent_ops() override { return ops_->recurrent_ops(); }
  StatusOr<std::unique_ptr<Matrix>> LoadMatrix(std::span<const HostMatrix> parts) override {
    return ops_->LoadMatrix(parts);
  }
  StatusOr<std::unique_ptr<Matrix>> LoadGateUp(const HostMatrix& gate,
                                               const HostMatrix& up) override {
    return ops_->LoadGateUp(gate, up);
  }
  StatusOr<std::unique_ptr<Vector>> LoadVector(std::span<const float> values) override {
    return ops_->LoadVector(values);
  }

  StatusOr<PlacedValues> PlaceValues(std::span<const ValueUse> values) override {
    return ops_->PlaceValues(values);
  }

  Status BeginStep(const StepInput& input, const KvView& kv) override {
    return ops_->BeginStep(input, kv);
  }
  Status IssueStep() override { return ops_->IssueStep(); }
  Status AwaitStep() override { return ops_->AwaitStep(); }
  void NotifyWhenDone(std::function<void()> notify) override {
    ops_->NotifyWhenDone(std::move(notify));
  }
  Status CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) override {
    return ops_->CopyBlocks(kv, copies);
  }

  void Embed(const Matrix& table, int32_t first_token, const Tensor& residual) override {
    ops_->Embed(table, first_token, residual);
  }
  void RmsNorm(const Tensor& residual,
               const Vector& weight,
               float epsilon,
               const Tensor& out) override {
    ops_->RmsNorm(residual, weight, epsilon, out);
  }
  void Add(const Tensor& residual, const Tensor& delta) override { ops_->Add(residual, delta); }
  void AddRmsNorm(const Tensor& residual,
                  const Tensor& delta,
                  const Vector& weight,
                  float epsilon,
                  const Tensor& out) override {
    ops_->AddRmsNorm(residual, delta, weight, epsilon, out);
  }
  void MatMul(const Tensor& x,
              const Matrix& weight,
              const Vector* bias,
              const Tensor& out) override {
    ops_->MatMul(x, weight, bias, out);
  }
  void MatMulSiluMul(const Tensor& x,
                     const Matrix& gate_up,
                     const Vector* bias,
                     const Tensor& out) override {
    ops_->MatMulSiluMul(x, gate_up, bias, out);
  }
  void Experts(const Tensor& x, const ExpertArgs& args, const Tensor& out) override {
    ops_->Experts(x, args, out);
  }
  void RopeAndWriteKv(const Tensor& qkv,
                      const HeadShape& heads,
                      const RopeArgs& args,
                      int32_t layer) override {
    ops_->RopeAndWriteKv(qkv, heads, args, layer);
  }
  void Attention(const Tensor& qkv, const AttentionArgs& args, const Tensor& out) override {
    ops_->Attention(qkv, args, out);
  }
  void GatherLogitRows(const Tensor& x, const Tensor& out) override {
    ops_->GatherLogitRows(x, out);
  }
  void Sample(const Tensor& logits,
              std::span<const SamplingRow> rows,
              std::span<SampledToken> out) override {
    ops_->Sample(logits, rows, out);
  }
  void CopyRows(const Tensor& x, std::span<const std::span<float>> rows) override {
    ops_->CopyRows(x, rows);
  }

 private:
  const std::unique_ptr<Ops> ops_;
};

}  // namespace baton
