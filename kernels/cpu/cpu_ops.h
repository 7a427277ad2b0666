#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_exchange.h"
#include "kernels/cpu/cpu_family_ops.h"
#include "kernels/cpu/cpu_matmul.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/latent_attention.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/recurrent.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/cpu/sampler.h"
#include "kernels/ops.h"
#include "kernels/state_chains.h"
#include "kernels/thread_pool.h"

namespace baton::cpu {

class HostVector final : public Vector {
 public:
  explicit HostVector(std::span<const float> values) : values_(values.begin(), values.end()) {}
  int64_t size() const override { return static_cast<int64_t>(values_.size()); }
  const float* data() const { return values_.data(); }

 private:
  std::vector<float> values_;
};

inline const float* HostData(const Vector& vector) {
  return static_cast<const HostVector&>(vector).data();
}

// Ops that run on the calling thread and a thread pool. Every op is finished when it returns. Bad
// arguments of BeginStep are returned as errors; bad arguments of an op are bugs of the caller and
// stop the process (CHECK). After an exchange failed, the ops of the step that would take long do
// nothing. One thread at a time.
class CpuOps final : public Ops {
 public:
  // The options must be valid (MakeCpuOps).
  CpuOps(CpuDevice& device, const CpuOptions& options);

  Device& device() override { return device_; }
  DType activation_dtype() const override { return DType::kF32; }
  KvNeeds kv_needs() const override;
  Status CheckModel(const ModelShape& shape) const override;
  Exchange* exchange() override { return exchange_.alone() ? nullptr : &exchange_; }
  FamilyOps* family_ops() override { return &family_ops_; }
  LatentOps* latent_ops() override { return &latent_ops_; }
  RecurrentOps* recurrent_ops() override { return &recurrent_ops_; }

  StatusOr<std::unique_ptr<Matrix>> LoadMatrix(std::span<const HostMatrix> parts) override;
  StatusOr<std::unique_ptr<Matrix>> LoadGateUp(const HostMatrix& gate,
                                               const HostMatrix& up) override;
  StatusOr<std::unique_ptr<Vector>> LoadVector(std::span<const float> values) override;

  StatusOr<PlacedValues> PlaceValues(std::span<const ValueUse> values) override {
    return PlaceInBuffer(values, device_);
  }

  Status BeginStep(const StepInput& input, const KvView& kv) override;
  Status IssueStep() override;
  Status AwaitStep() override { return exchange_.status(); }
  void NotifyWhenDone(std::function<void()> done) override;

  void Embed(const Matrix& table, int32_t first_token, const Tensor& residual) override;
  void RmsNorm(const Tensor& x, const Vector& weight, float epsilon, const Tensor& out) override;
  void Add(const Tensor& residual, const Tensor& delta) override;
  void AddRmsNorm(const Tensor& residual,
                  const Tensor& delta,
                  const Vector& weight,
                  float epsilon,
                  const Tensor& out) override;
  void MatMul(const Tensor& x,
              const Matrix& weight,
              const Vector* bias,
              const Tensor& out) override;
  void MatMulSiluMul(const Tensor& x,
                     const Matrix& gate_up,
                     const Vector* bias,
                     const Tensor& out) override;
  void Experts(const Tensor& x, const ExpertArgs& args, const Tensor& out) override;
  void RopeAndWriteKv(const Tensor& qkv,
                      const HeadShape& heads,
                      const RopeArgs& args,
                      int32_t layer) override;
  void Attention(const Tensor& qkv, const AttentionArgs& args, const Tensor& out) override;
  void GatherLogitRows(const Tensor& x, const Tensor& out) override;
  void Sample(const Tensor& logits,
              std::span<const SamplingRow> rows,
              std::span<SampledToken> out) override;
  void CopyRows(const Tensor& x, std::span<const std::span<float>> rows) override;
  Status CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) override;

 private:
  // Normalises and rotates the q and k heads of one row.
  void RotateRow(float* row,
                 const HeadShape& heads,
                 const RopeArgs& args,
                 int64_t index,
                 const RopeTables::View& angles) const;
  void WriteKvRow(const float* row, const HeadShape& heads, int32_t layer, int64_t index) const;
  void CheckHeads(const HeadShape& heads, const Tensor& qkv) const;

  struct ExpertStep;
  // Adds the weighted output of one expert for the rows that are routed to it.
  void AddExpert(const ExpertStep& step, int32_t expert, const Tensor& sum);
  // Computes the sums of the parts that this rank holds, exchanges them, and adds them to `out`.
  // `sums` has the columns of one part when this rank holds all experts, and of all parts else.
  void SumExpertParts(const ExpertStep& step, const Tensor& sums, const Tensor& out);

  CpuDevice& device_;
  const KernelTable& kernels_;
  ThreadPool pool_;
  WeightMemory weights_;
  CpuMatMul matmul_;
  CpuFamilyOps family_ops_;
  CpuExchange exchange_;

  // State of the current step.
  StepInput input_;
  KvView kv_;
  std::vector<int32_t> row_sequence_;  // the index of each row's sequence
  int64_t longest_ = 0;                // most positions to which a row of this step attends
  StateChains chains_;

  // Scratch memory, reused from step to step.
  RopeTables rope_;
  std::vector<std::vector<float>> attention_scratch_;  // per thread
  std::vector<Sampler> samplers_;                      // per thread
  std::vector<float> expert_scratch_;

  // The last members, because they refer to others.
  CpuLatentOps latent_ops_;
  CpuRecurrentOps recurrent_ops_;
};

float* FloatRow(const Tensor& tensor, int64_t row);

}  // namespace baton::cpu
