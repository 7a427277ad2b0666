#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/device/matrix.h"
#include "kernels/cuda/device/scratch_memory.h"
#include "kernels/cuda/model_check.h"
#include "kernels/cuda/step/graph_cache.h"
#include "kernels/cuda/step/pending_step.h"
#include "kernels/cuda/step/step_buffer.h"
#include "kernels/cuda/step/step_layout.h"
#include "kernels/cuda/step/step_ops.h"
#include "kernels/ops.h"

namespace baton::cuda {

// Ops on one GPU. Ops are written down (calls.h) and run when the step ends: as they are, or, in a
// step that only decodes, as a CUDA graph for a padded number of rows. Bad arguments of BeginStep
// are errors, bad arguments of an op are bugs of the caller and checked; CUDA errors come out of
// IssueStep and AwaitStep. One thread at a time.
class CudaOps final : public Ops {
 public:
  static StatusOr<std::unique_ptr<CudaOps>> Create(CudaDevice& device, const CudaOptions& options);
  ~CudaOps() override;

  Device& device() override { return device_; }
  DType activation_dtype() const override { return DType::kBF16; }
  bool k_dim_major() const override { return false; }
  bool quantizes_kv() const override;
  int32_t block_token_multiple() const override { return kBlockTokenMultiple; }
  Status CheckModel(const ModelShape& shape) const override { return cuda::CheckModel(shape); }
  int32_t PaddedRows(int32_t rows) const override;
  WarmUpSizes SizesToWarmUp(int32_t rows, int32_t decode_rows) const override;

  StatusOr<std::unique_ptr<Matrix>> LoadMatrix(std::span<const HostMatrix> parts) override;
  StatusOr<std::unique_ptr<Matrix>> LoadGateUp(const HostMatrix& gate,
                                               const HostMatrix& up) override;
  StatusOr<std::unique_ptr<Vector>> LoadVector(std::span<const float> values) override;

  Status BeginStep(const StepInput& input, const KvView& kv) override;
  bool queues_steps() const override { return true; }
  Status IssueStep() override;
  Status AwaitStep() override;
  Duration DeviceTime() const override { return device_time_; }

  void Embed(const Matrix& table, const Tensor& residual) override;
  void RmsNorm(const Tensor& residual,
               const Vector& weight,
               float epsilon,
               const Tensor& out) override;
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
  void NotifyWhenDone(std::function<void()> notify) override;
  Status CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) override;

 private:
  CudaOps(CudaDevice& device, const CudaOptions& options);
  Status Create();
  // `tensor` with the step's padding, when it has the step's rows.
  Tensor Padded(const Tensor& tensor) const;
  void Multiply(const Tensor& x, const Matrix& weight, const Vector* bias, const Tensor& out);
  // `product` with a weight in E4M3.
  void MatMulFp8(GemmProblem problem, const Fp8Rows& weight, const Tensor& x, const Tensor& out);
  // Plans what depends on the step's sequences, and brings the step's data to the device.
  Status PlanStep();
  Status PlanOps();
  Status RunStep();
  Status StartStep();
  PendingStep& pending() { return pending_[next_]; }
  OpContext context();

  CudaDevice& device_;
  const CudaOptions options_;
  WeightLoader loader_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<cuda::Attention> attention_;
  std::unique_ptr<cuda::Experts> experts_;
  std::unique_ptr<Sampling> sampling_;
  std::unique_ptr<StepBuffer> fixed_;
  std::unique_ptr<StepBuffer> lists_;
  GraphCache graphs_;

  // In turn, since two steps at most are under way.
  std::array<PendingStep, Sampling::kSlots> pending_;
  size_t next_ = 0;  // of the step that is written down
  size_t under_way_ = 0;
  Duration device_time_{};

  // This step.
  StepInput input_;
  KvView kv_;
  StepLayout layout_;
  std::vector<StepOp> ops_list_;
  std::span<const SamplingRow> sampling_rows_;
  Status error_;

  // Scratch, kept from step to step; grows.
  ScratchMemory gate_up_;
  ScratchMemory angles_;
  ScratchMemory packed_;
  // Operands of products, in turn: what writes one may read the scales of the one before.
  ScratchMemory quantized_[2];
  size_t next_quantized_ = 0;
};

}  // namespace baton::cuda
