#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/device/growing_memory.h"
#include "kernels/cuda/device/matrix.h"
#include "kernels/cuda/exchange/group_exchange.h"
#include "kernels/cuda/exchange/listed_exchange.h"
#include "kernels/cuda/graph/bind_memory.h"
#include "kernels/cuda/graph/fused_lists.h"
#include "kernels/cuda/graph/split_rows.h"
#include "kernels/cuda/graph/step_ops.h"
#include "kernels/cuda/graph/value_space.h"
#include "kernels/cuda/input/step_buffer.h"
#include "kernels/cuda/input/step_layout.h"
#include "kernels/cuda/latent/latent_attention.h"
#include "kernels/cuda/step/cuda_options.h"
#include "kernels/cuda/step/decode_sizes.h"
#include "kernels/cuda/step/graph_cache.h"
#include "kernels/cuda/step/listed_family_ops.h"
#include "kernels/cuda/step/listed_latent_ops.h"
#include "kernels/cuda/step/listed_recurrent_ops.h"
#include "kernels/cuda/step/pending_step.h"
#include "kernels/cuda/table/model_check.h"
#include "kernels/ops.h"

namespace baton::cuda {

// Ops on one GPU. The calls between BeginStep and IssueStep become a list of ops (step_ops.h),
// which IssueStep launches: op by op, or, in a step that only decodes, as a CUDA graph for a padded
// number of rows. BeginStep returns an error for bad arguments. Bad arguments of an op are bugs of
// the caller (CHECK). IssueStep and AwaitStep return CUDA errors. One thread at a time.
class CudaOps final : public Ops {
 public:
  static StatusOr<std::unique_ptr<CudaOps>> Create(CudaDevice& device, const CudaOptions& options);
  ~CudaOps() override;

  Device& device() override { return device_; }
  DType activation_dtype() const override { return DType::kBF16; }
  KvNeeds kv_needs() const override {
    return {.block_token_multiple = kBlockTokenMultiple, .cache_groups = true, .states = true};
  }
  bool supports_fp8_kv() const override;
  Status CheckModel(const ModelShape& shape) const override {
    return cuda::CheckModel(shape, properties_, options_.deterministic);
  }
  int32_t PaddedRows(int32_t rows) const override;
  WarmUpSizes SizesToWarmUp(int32_t rows, int32_t decode_rows) const override {
    return cuda::SizesToWarmUp(rows, decode_rows);
  }
  // The ranks of a group must run the same steps, whatever each of them has timed.
  bool has_timed_kernels() const override { return exchange_ != nullptr || gemm_->has_timed(); }
  Status KeepTimedKernels() override { return gemm_->WriteCache(); }
  Exchange* exchange() override { return listed_.get(); }
  FamilyOps* family_ops() override { return &family_; }
  LatentOps* latent_ops() override { return &latent_; }
  RecurrentOps* recurrent_ops() override { return &recurrent_; }

  StatusOr<std::unique_ptr<Matrix>> LoadMatrix(std::span<const HostMatrix> parts) override;
  StatusOr<std::unique_ptr<Matrix>> LoadGateUp(const HostMatrix& gate,
                                               const HostMatrix& up) override;
  StatusOr<std::unique_ptr<Vector>> LoadVector(std::span<const float> values) override;

  StatusOr<PlacedValues> PlaceValues(std::span<const ValueUse> values) override;

  Status BeginStep(const StepInput& input, const KvView& kv) override;
  bool queues_steps() const override { return true; }
  bool samples_later() const override { return exchange_ == nullptr; }
  Status IssueSampling() override;
  bool has_late_rows() const override { return has_late_rows_; }
  Status IssueStep() override;
  bool StepEnded() const override;
  Status AwaitStep() override;
  Duration DeviceTime() const override { return device_time_; }
  // What the values of the step needed that needed most, of all steps so far.
  const StepMemory& largest_memory() const { return largest_; }

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
  void NotifyWhenDone(std::function<void()> notify) override;
  Status CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) override;

 private:
  CudaOps(CudaDevice& device, const CudaOptions& options);
  Status Create();
  Status ConnectRanks();
  // The index of the oldest step in flight.
  size_t oldest() const { return (next_ + pending_.size() - in_flight_) % pending_.size(); }
  // The index of the step to which listed ops belong.
  size_t listed() const { return is_listed_ ? next_ : oldest(); }
  // `tensor` with the padded number of rows, when it has one row for each row of the step.
  Tensor Padded(const Tensor& tensor) const;
  // Memory that only ops of the step being listed use.
  std::byte* Scratch(int64_t bytes) { return values_->Scratch(static_cast<size_t>(bytes)); }
  // The angles of `rows` rows, [rows][pairs]; lists the op that computes them, unless the last one
  // does.
  const float2* Angles(const Vector& inverse_frequencies, float magnitude, int64_t rows);
  // Whether there are kernels for a recurrent layer; if not, the step fails.
  bool Accepts(const RecurrentShape& shape);
  // ListedRecurrentOps::Step::decodes and chunks.
  bool DecodesRows(const RecurrentShape& shape) const;
  ListedRecurrentOps::ChunkPlan ChunksOf(const RecurrentShape& shape) const;
  // KvLayerPlace::index of a recurrent layer.
  int32_t StatePlace(int32_t layer, const RecurrentShape& shape) const;
  // Lists the ops that compute `problem` with an FP8 weight.
  void MatMulFp8(GemmProblem problem, const Fp8Rows& weight, const Tensor& x, const Tensor& out);
  // Splits rows of the listed ops, fuses ops, and finds memory for their operands.
  Status FuseList();
  // Fuses the listed ops, plans attention and sampling for the step's sequences, and uploads the
  // step's data.
  Status PlanStep();
  Status PlanOps();
  Status PlanAttention();
  Status PlanLatents();
  Status RunStep();
  Status StartStep();
  Status RunOps(const std::vector<StepOp>& ops, cudaStream_t stream);
  bool HasMasks() const;
  // Takes SampleOp and the ops after it out of the list.
  std::vector<StepOp> TakeSampling();
  // Waits for the masks of rows, then uploads the sampling's data and launches `ops`, which begin
  // with SampleOp.
  Status RunSampling(std::vector<StepOp> ops, cudaStream_t stream);
  // Runs the ops that were listed after `step`, the oldest one in flight, was issued. Waits for
  // their end.
  Status RunLateOps(PendingStep& step);
  PendingStep& pending() { return pending_[next_]; }
  OpContext context(cudaStream_t stream);

  CudaDevice& device_;
  const DeviceProperties properties_;
  const CudaOptions options_;
  WeightLoader loader_;
  cudaStream_t stream_ = nullptr;
  cudaStream_t late_stream_ = nullptr;  // of RunLateOps; null where no op is late
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<cuda::Attention> attention_;
  std::unique_ptr<LatentAttention> latents_;
  std::unique_ptr<cuda::Experts> experts_;
  std::unique_ptr<Sampling> sampling_;
  std::unique_ptr<StepBuffer> fixed_;
  std::unique_ptr<StepBuffer> lists_;
  std::unique_ptr<StepBuffer> sampled_;  // of RunSampling
  // Both null when this rank is the only one.
  std::unique_ptr<GroupExchange> exchange_;
  std::unique_ptr<ListedExchange> listed_;
  ListedFamilyOps family_;
  ListedLatentOps latent_;
  ListedRecurrentOps recurrent_;
  RowSplit row_split_;
  std::unique_ptr<GrowingMemory> memory_;  // of the values of steps
  std::unique_ptr<ValueSpace> values_;
  StepMemory largest_;
  FusedLists fused_;
  GraphCache graphs_;  // destroyed before exchange_

  std::vector<PendingStep> pending_;  // used in turn
  size_t next_ = 0;                   // index of the current step
  size_t in_flight_ = 0;              // steps that were issued and not yet awaited
  Duration device_time_{};

  // The current step, between BeginStep and IssueStep. Afterwards the list has the late ops of the
  // oldest step in flight.
  bool is_listed_ = false;  // between BeginStep and IssueStep
  StepInput input_;
  KvView kv_;
  StepLayout layout_;
  std::vector<StepOp> ops_list_;
  std::optional<AnglesOp> angles_op_;  // the last one in the list
  std::span<const SamplingRow> sampling_rows_;
  bool has_late_rows_ = false;
  Status error_;
};

}  // namespace baton::cuda
