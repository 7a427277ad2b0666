#include <utility>

#include <fmt/format.h>

#include "common/base/check.h"
#include "kernels/cuda/step/cuda_ops.h"
#include "kernels/cuda/table/kernel_table.h"
#include "kernels/cuda/table/recurrent_request.h"

// The ops of a step as a list.
namespace baton::cuda {
namespace {

const CudaMatrix& Cast(const Matrix& matrix) {
  return static_cast<const CudaMatrix&>(matrix);
}

}  // namespace

Tensor CudaOps::Padded(const Tensor& tensor) const {
  const PendingStep& step = pending_[listed()];
  Tensor padded = tensor;
  if (tensor.rows == step.rows) padded.rows = step.padded_rows;
  return padded;
}

void CudaOps::Embed(const Matrix& table, int32_t first_token, const Tensor& residual) {
  ops_list_.emplace_back(EmbedOp{&Cast(table), first_token, Padded(residual)});
}

void CudaOps::RmsNorm(const Tensor& x, const Vector& weight, float epsilon, const Tensor& out) {
  if (x.dtype == DType::kBF16) {
    ops_list_.emplace_back(ActivationNormOp{Padded(x), DataOf(&weight), epsilon, Padded(out)});
    return;
  }
  ops_list_.emplace_back(NormOp{
      .residual = Padded(x), .weight = DataOf(&weight), .epsilon = epsilon, .out = Padded(out)});
}

void CudaOps::Add(const Tensor& residual, const Tensor& delta) {
  ops_list_.emplace_back(AddOp{Padded(residual), Padded(delta)});
}

void CudaOps::AddRmsNorm(const Tensor& residual,
                         const Tensor& delta,
                         const Vector& weight,
                         float epsilon,
                         const Tensor& out) {
  ops_list_.emplace_back(NormOp{.residual = Padded(residual),
                                .input = DeltaInput{Padded(delta)},
                                .weight = DataOf(&weight),
                                .epsilon = epsilon,
                                .out = Padded(out)});
}

void CudaOps::MatMul(const Tensor& x, const Matrix& weight, const Vector* bias, const Tensor& out) {
  BATON_CHECK(x.cols == weight.cols() && out.cols == weight.rows() && x.rows == out.rows,
              "GEMM of {}×{} by a weight of {}×{} into {}×{}: the shapes do not match",
              x.rows,
              x.cols,
              weight.rows(),
              weight.cols(),
              out.rows,
              out.cols);
  if (x.dtype == DType::kF32) {  // the residual itself
    const Tensor rounded = {
        Scratch(Padded(x).rows * x.cols * 2), DType::kBF16, x.rows, x.cols, x.cols};
    ops_list_.emplace_back(RoundOp{Padded(x), Padded(rounded)});
    return MatMul(rounded, weight, bias, out);
  }
  const CudaMatrix& matrix = Cast(weight);
  const bool is_dot = weight.rows() == 1 && matrix.dtype() == DType::kBF16 &&
                      out.dtype == DType::kBF16 && bias == nullptr;
  if (is_dot) {
    ops_list_.emplace_back(FamilyOp(DotOp{Padded(x), matrix.data(), Padded(out)}));
    return;
  }
  if (bias != nullptr && out.dtype == DType::kF32) {
    MatMul(x, weight, nullptr, out);
    ops_list_.emplace_back(FamilyOp(BiasOp{Padded(out), DataOf(bias)}));
    return;
  }
  GemmProblem problem = {
      .x = x.data,
      .weight = matrix.data(),
      .bias = bias == nullptr ? nullptr : static_cast<const CudaVector*>(bias)->bf16(),
      .out = out.data,
      .out_dtype = out.dtype,
      .rows = static_cast<int32_t>(Padded(x).rows),
      .n = static_cast<int32_t>(weight.rows()),
      .k = static_cast<int32_t>(weight.cols()),
      .x_stride = x.stride,
      .out_stride = out.stride};
  if (matrix.dtype() == DType::kFp8 && !matrix.is_packed()) {
    MatMulFp8(problem, matrix.fp8(), x, out);
    return;
  }
  if (matrix.is_packed()) {
    const PackedWeights weights = matrix.packed();
    problem.weight = weights.data;
    problem.weight_dtype = weights.format.number;
    problem.weight_scales = weights.factors;
    problem.packed = weights.format;
    if (gemm_->Widens(problem)) problem.widened = Scratch(WidenedBytes(problem));
  }
  ops_list_.emplace_back(MatMulOp{problem});
}

void CudaOps::MatMulFp8(GemmProblem problem,
                        const Fp8Rows& weight,
                        const Tensor& x,
                        const Tensor& out) {
  problem.weight = weight.data;
  problem.weight_dtype = DType::kFp8;
  problem.weight_scales = weight.scales;
  if (gemm_->SupportsFused(problem)) {
    ops_list_.emplace_back(MatMulOp{problem});
    return;
  }
  const size_t bytes = Fp8Rows::Bytes(problem.rows, problem.k);
  const Fp8Rows rows = Fp8Rows::At(values_->Scratch(bytes), problem.rows, problem.k);
  ops_list_.emplace_back(QuantizeOp{Padded(x), rows});
  problem.x = rows.data;
  problem.x_dtype = DType::kFp8;
  problem.x_stride = rows.cols;
  problem.x_scales = rows.scales;
  if (gemm_->SupportsFused(problem)) {
    ops_list_.emplace_back(MatMulOp{problem});
    return;
  }
  const RescaleOp rescale = {Padded(out), {rows.scales, weight.scales}, problem.bias};
  problem.x_scales = nullptr;
  problem.weight_scales = nullptr;
  problem.bias = nullptr;
  ops_list_.emplace_back(MatMulOp{problem});
  ops_list_.emplace_back(rescale);
}

void CudaOps::MatMulSiluMul(const Tensor& x,
                            const Matrix& gate_up,
                            const Vector* bias,
                            const Tensor& out) {
  const int64_t cols = gate_up.rows();
  const Tensor both = {Scratch(Padded(x).rows * cols * 2), DType::kBF16, x.rows, cols, cols};
  MatMul(x, gate_up, bias, both);
  ops_list_.emplace_back(SiluMulOp{.gate_up = Padded(both), .out = Padded(out)});
}

void CudaOps::Experts(const Tensor& x, const ExpertArgs& args, const Tensor& out) {
  const int32_t rank = listed_ == nullptr ? 0 : listed_->place().tensor_rank;
  const int32_t first =
      args.rank_ends.empty() || rank == 0 ? 0 : args.rank_ends[static_cast<size_t>(rank) - 1];
  auto prepared = experts_->Prepare(args, first);
  if (!prepared.ok()) {
    error_ = prepared.status();
    return;
  }
  prepared->scratch = values_->Scratch(cuda::Experts::ScratchBytes(*prepared, Padded(x).rows));
  const bool shared = !args.rank_ends.empty() && listed_ != nullptr;
  // A sum of rounded parts would depend on the number of ranks.
  const bool exact = shared && listed_->mode() == ExchangeMode::kGather;
  Tensor sum = out;
  if (exact) {
    sum.data = Scratch(Padded(out).rows * out.cols * 4);
    sum.dtype = DType::kF32;
    sum.stride = out.cols;
  }
  ops_list_.emplace_back(ExpertsOp{Padded(x), *prepared, Padded(sum)});
  if (shared) listed_->AllReduce(sum);
  if (exact) ops_list_.emplace_back(RoundOp{Padded(sum), Padded(out)});
}

const float2* CudaOps::Angles(const Vector& inverse_frequencies, float magnitude, int64_t rows) {
  const auto pairs = static_cast<int32_t>(inverse_frequencies.size());
  AnglesOp angles = {.inverse_frequencies = DataOf(&inverse_frequencies),
                     .pairs = pairs,
                     .magnitude = magnitude,
                     .angles = angles_op_ ? angles_op_->angles : nullptr};
  // Layers of one kind share the angles.
  if (angles_op_ != angles) {
    constexpr auto kAngleBytes = static_cast<int64_t>(sizeof(float2));
    angles.angles = reinterpret_cast<float2*>(Scratch(rows * pairs * kAngleBytes));
    ops_list_.emplace_back(angles);
    angles_op_ = angles;
  }
  return angles.angles;
}

void CudaOps::RopeAndWriteKv(const Tensor& qkv,
                             const HeadShape& heads,
                             const RopeArgs& args,
                             int32_t layer) {
  const auto pairs = args.inverse_frequencies == nullptr
                         ? 0
                         : static_cast<int32_t>(args.inverse_frequencies->size());
  const Tensor padded = Padded(qkv);
  const float2* const angles =
      pairs == 0 ? nullptr : Angles(*args.inverse_frequencies, args.magnitude, padded.rows);
  const KvLayerPlace place = kv_.PlaceOf(layer);
  ops_list_.emplace_back(RopeOp{.qkv = padded,
                                .heads = heads,
                                .pairing = args.pairing,
                                .pairs = pairs,
                                .angles = angles,
                                .q_norm = DataOf(args.q_norm),
                                .k_norm = DataOf(args.k_norm),
                                .norm_epsilon = args.norm_epsilon,
                                .norm_after_rope = args.norm_after_rope,
                                .kv_scales = DataOf(args.kv_scales),
                                .query_scaling = args.query_scaling,
                                .cache_group = place.group,
                                .layer = place.index});
}

bool CudaOps::Accepts(const RecurrentShape& shape) {
  const Status computes = CheckChoice(RecurrentRequest(shape, options_.deterministic), properties_);
  if (!computes.ok()) error_ = computes;
  return computes.ok();
}

bool CudaOps::DecodesRows(const RecurrentShape& shape) const {
  if (!layout_.states.single_rows) return false;
  const KernelRule* const rule = Choose(
      RecurrentRowsRequest(shape, StateAlignment(shape, kv_), options_.deterministic), properties_);
  return rule != nullptr && rule->kernel == KernelId::kDecodeRows;
}

ListedRecurrentOps::ChunkPlan CudaOps::ChunksOf(const RecurrentShape& shape) const {
  if (layout_.chunks.chunks == 0) return {};
  const KernelRule* const rule =
      Choose(RecurrentChunksRequest(shape, options_.deterministic), properties_);
  if (rule == nullptr || rule->kernel != KernelId::kChunkRows) return {};
  return {.chunks = layout_.chunks.chunks, .all_rows = layout_.walked.chains == 0};
}

int32_t CudaOps::StatePlace(int32_t layer, const RecurrentShape& shape) const {
  const int64_t bytes = shape.state_numbers() * static_cast<int64_t>(sizeof(float));
  const int32_t index = kv_.PlaceOf(layer).index;
  const int64_t held = input_.state_blocks * kv_.state.block_bytes;
  BATON_CHECK(kv_.state.layer_bytes == bytes && (index + 1) * bytes <= held,
              "a state of {} bytes in layers of {}, in {} blocks of {}",
              bytes,
              kv_.state.layer_bytes,
              input_.state_blocks,
              kv_.state.block_bytes);
  return index;
}

void CudaOps::Attention(const Tensor& qkv, const AttentionArgs& args, const Tensor& out) {
  const KvLayerPlace place = kv_.PlaceOf(args.layer);
  AttentionOp call;
  call.qkv = Padded(qkv);
  call.layer = place.index;
  call.kv_scales = DataOf(args.kv_scales);
  call.sinks = DataOf(args.sinks);
  call.out = Padded(out);
  call.shape = {.q_heads = args.heads.q_heads,
                .kv_heads = args.heads.kv_heads,
                .head_dim = args.heads.head_dim,
                .window = args.window,
                .chunk = args.chunk,
                .scale = args.scale,
                .cap = args.cap,
                .has_sinks = args.sinks != nullptr,
                .cache_group = place.group,
                .only_logit_rows = args.only_logit_rows && !layout_.recorded};
  if (call.out.stride != call.out.cols) {
    call.packed = call.out;
    call.packed.data = Scratch(call.out.rows * call.out.cols * 2);
    call.packed.stride = call.out.cols;
  }
  ops_list_.emplace_back(std::move(call));
}

void CudaOps::GatherLogitRows(const Tensor& x, const Tensor& out) {
  ops_list_.emplace_back(GatherOp{Padded(x), Padded(out)});
}

void CudaOps::Sample(const Tensor& logits,
                     std::span<const SamplingRow> rows,
                     std::span<SampledToken> out) {
  sampling_rows_ = rows;
  pending_[listed()].sampled = out;
  ops_list_.emplace_back(SampleOp{Padded(logits), {}});
}

void CudaOps::CopyRows(const Tensor& x, std::span<const std::span<float>> rows) {
  BATON_CHECK(std::cmp_equal(rows.size(), x.rows), "{} copies of {} rows", rows.size(), x.rows);
  if (const Status room = pending_[listed()].PrepareCopy(x, rows); !room.ok()) error_ = room;
  ops_list_.emplace_back(CopyRowsOp{x});
}

void CudaOps::NotifyWhenDone(std::function<void()> notify) {
  const StatusOr<size_t> index = pending().AddCallback(std::move(notify));
  if (!index.ok()) {
    error_ = index.status();
    return;
  }
  ops_list_.emplace_back(NotifyOp{*index});
}

}  // namespace baton::cuda
