#include "kernels/cuda/step/cuda_ops.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "common/base/check.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/step/trace_range.h"

namespace baton::cuda {
namespace {

// The first architecture whose tensor cores support FP8.
constexpr int kFp8Architecture = 89;
constexpr size_t kStepBytes = size_t{8} << 20;

const CudaMatrix& Cast(const Matrix& matrix) {
  return static_cast<const CudaMatrix&>(matrix);
}

const float* DataOf(const Vector* vector) {
  return vector == nullptr ? nullptr : static_cast<const CudaVector*>(vector)->data();
}

}  // namespace

CudaOps::CudaOps(CudaDevice& device, const CudaOptions& options)
    : device_(device), options_(options), loader_(device, options.fp8_weights) {}

CudaOps::~CudaOps() {
  if (stream_ == nullptr) return;
  if (exchange_ != nullptr && under_way_ > 0) {
    exchange_->watch().Fail(MakeStatus(StatusCode::kUnavailable, "the backend is closed"));
  }
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

StatusOr<std::unique_ptr<CudaOps>> CudaOps::Create(CudaDevice& device, const CudaOptions& options) {
  std::unique_ptr<CudaOps> ops(new CudaOps(device, options));
  BATON_RETURN_IF_ERROR(ops->Create());
  return ops;
}

Status CudaOps::Create() {
  if (options_.fp8_weights && device_.architecture() < kFp8Architecture) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "FP8 weights need a GPU of sm_{} or newer; this one is sm_{}",
                      kFp8Architecture,
                      device_.architecture());
  }
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  int least = 0;
  int greatest = 0;
  BATON_CUDA_RETURN_IF_ERROR(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  BATON_CUDA_RETURN_IF_ERROR(
      cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
  for (PendingStep& step : pending_) BATON_RETURN_IF_ERROR(step.Create());
  BATON_ASSIGN_OR_RETURN(gemm_,
                         Gemm::Create({.deterministic = options_.deterministic,
                                       .architecture = device_.architecture(),
                                       .sm_count = device_.sm_count(),
                                       .cache_folder = options_.kernel_cache}));
  BATON_ASSIGN_OR_RETURN(attention_,
                         cuda::Attention::Create({.deterministic = options_.deterministic}));
  BATON_ASSIGN_OR_RETURN(experts_,
                         cuda::Experts::Create({.deterministic = options_.deterministic,
                                                .architecture = device_.architecture(),
                                                .sm_count = device_.sm_count()}));
  BATON_ASSIGN_OR_RETURN(sampling_, Sampling::Create());
  BATON_ASSIGN_OR_RETURN(fixed_, StepBuffer::Create(kStepBytes));
  BATON_ASSIGN_OR_RETURN(lists_, StepBuffer::Create(kStepBytes));
  BATON_ASSIGN_OR_RETURN(masked_, StepBuffer::Create(kStepBytes));
  return ConnectRanks();
}

Status CudaOps::ConnectRanks() {
  if (PlaceIn(options_.groups) == RankPlace{}) return OkStatus();
  BATON_ASSIGN_OR_RETURN(exchange_, GroupExchange::Create(options_.groups));
  row_split_ = RowSplit::Between(*exchange_);
  listed_ = std::make_unique<ListedExchange>(
      ListedExchange::Options{
          .place = exchange_->place(),
          // A rank's outputs then have the bits that one GPU gives them.
          .mode = options_.deterministic ? ExchangeMode::kGather : ExchangeMode::kReduce,
          .slot_bytes = exchange_->slot_bytes(),
          .description = exchange_->description()},
      ListedExchange::Step{
          .pad = [this](const Tensor& tensor) { return Padded(tensor); },
          .scratch =
              [this](size_t bytes) {
                return Scratch(exchanged_, static_cast<int64_t>(bytes), "an exchange");
              },
          .add = [this](ExchangeOp op) { ops_list_.emplace_back(std::move(op)); }});
  return OkStatus();
}

bool CudaOps::supports_fp8_kv() const {
  return device_.architecture() >= kFp8Architecture;
}

int32_t CudaOps::PaddedRows(int32_t rows) const {
  return rows <= kMaxRecordedRows ? PaddedDecodeRows(rows) : rows;
}

StatusOr<std::unique_ptr<Matrix>> CudaOps::LoadMatrix(std::span<const HostMatrix> parts) {
  return loader_.Load(parts);
}

StatusOr<std::unique_ptr<Matrix>> CudaOps::LoadGateUp(const HostMatrix& gate,
                                                      const HostMatrix& up) {
  if (gate.rows != up.rows) {
    return InvalidArgument("gate has {} rows and up {}; they must be equal", gate.rows, up.rows);
  }
  const std::array<HostMatrix, 2> parts = {gate, up};
  return loader_.Load(parts);
}

StatusOr<std::unique_ptr<Vector>> CudaOps::LoadVector(std::span<const float> values) {
  return loader_.Load(values);
}

// ---- a step

Status CudaOps::BeginStep(const StepInput& input, const KvView& kv) {
  BATON_CHECK(under_way_ < pending_.size(), "a step begins while {} are in flight", under_way_);
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  input_ = input;
  kv_ = kv;
  ops_list_.clear();
  sampling_rows_ = {};
  pending().Clear();
  error_ = OkStatus();
  next_quantized_ = 0;
  if (listed_ != nullptr) listed_->BeginStep();
  fixed_->Clear();
  lists_->Clear();
  const auto rows = static_cast<int32_t>(input.tokens.size());
  const bool recorded = options_.graphs && rows <= kMaxRecordedRows && OnlyDecodes(input);
  return layout_.Build(input_, kv_, recorded ? PaddedDecodeRows(rows) : 0, *fixed_, *lists_);
}

Status CudaOps::IssueStep() {
  Status status = StartStep();
  if (status.ok()) {
    next_ = 1 - next_;
    ++under_way_;
    if (exchange_ != nullptr) exchange_->watch().Begin();
    return status;
  }
  // The other ranks wait for exchanges that this rank does not issue.
  if (exchange_ != nullptr) exchange_->watch().Fail(status);
  // Nothing of this step may still run when the next step writes its buffers. If the device is
  // lost, that error is returned, because it is the cause of `status`.
  const Status synchronized = ToStatus(cudaStreamSynchronize(stream_), "a step");
  return synchronized.code() == StatusCode::kUnavailable ? synchronized : status;
}

Status CudaOps::StartStep() {
  BATON_RETURN_IF_ERROR(error_);
  if (listed_ != nullptr) listed_->EndStep(sampling_->tokens(), layout_.logit_rows);
  std::vector<StepOp> sampling = TakeMaskedSampling();
  BATON_RETURN_IF_ERROR(PlanStep());
  BATON_RETURN_IF_ERROR(RunStep());
  if (!sampling.empty()) BATON_RETURN_IF_ERROR(RunMaskedSampling(std::move(sampling)));
  if (!pending().sampled.empty()) BATON_RETURN_IF_ERROR(sampling_->Fetch(next_, stream_));
  BATON_CUDA_RETURN_IF_ERROR(pending().End(stream_, /*marked=*/!layout_.recorded));
  return OkStatus();
}

bool CudaOps::StepEnded() const {
  BATON_CHECK(under_way_ > 0, "StepEnded was called, but no step is in flight");
  const bool aborted = exchange_ != nullptr && !exchange_->watch().status().ok();
  return aborted || pending_[oldest()].ended();
}

Status CudaOps::AwaitStep() {
  BATON_CHECK(under_way_ > 0, "AwaitStep was called, but no step is in flight");
  const size_t slot = oldest();
  const PendingStep& step = pending_[slot];
  const TraceRange range("await step");
  const Status ended = step.Await(exchange_ == nullptr ? nullptr : &exchange_->watch());
  --under_way_;
  if (exchange_ != nullptr) exchange_->watch().End();
  BATON_RETURN_IF_ERROR(ended);
  device_time_ = step.DeviceTime();
  if (!step.sampled.empty()) sampling_->Collect(slot, step.sampled);
  return OkStatus();
}

Status CudaOps::PlanOps() {
  const AttentionPlan* last = nullptr;
  for (StepOp& call : ops_list_) {
    if (auto* attention = std::get_if<AttentionOp>(&call)) {
      if (last == nullptr || !(last->shape == attention->plan.shape)) {
        BATON_ASSIGN_OR_RETURN(attention->plan,
                               attention_->Plan(attention->plan.shape, layout_, kv_, *fixed_));
      } else {
        attention->plan = *last;
      }
      last = &attention->plan;
    } else if (auto* sample = std::get_if<SampleOp>(&call)) {
      BATON_ASSIGN_OR_RETURN(sample->plan,
                             sampling_->Plan(sampling_rows_,
                                             static_cast<int32_t>(sample->logits.rows),
                                             static_cast<int32_t>(sample->logits.cols),
                                             *fixed_,
                                             *lists_));
    }
  }
  return OkStatus();
}

Status CudaOps::PlanStep() {
  const TraceRange range("plan step");
  if (!layout_.recorded) SplitRows(ops_list_, layout_.rows, row_split_);
  FuseOps(ops_list_, *gemm_);
  BATON_RETURN_IF_ERROR(PlanOps());
  for (;;) {
    BATON_ASSIGN_OR_RETURN(const bool fixed_fits, fixed_->Fits());
    BATON_ASSIGN_OR_RETURN(const bool lists_fit, lists_->Fits());
    if (fixed_fits && lists_fit) break;
    fixed_->Clear();
    lists_->Clear();
    BATON_RETURN_IF_ERROR(
        layout_.Build(input_, kv_, layout_.recorded ? layout_.rows : 0, *fixed_, *lists_));
    BATON_RETURN_IF_ERROR(PlanOps());
  }
  BATON_CUDA_RETURN_IF_ERROR(pending().Begin(stream_));
  BATON_CUDA_RETURN_IF_ERROR(fixed_->Upload(stream_));
  BATON_CUDA_RETURN_IF_ERROR(lists_->Upload(stream_));
  return OkStatus();
}

Status CudaOps::RunStep() {
  const TraceRange range("launch step");
  const OpContext with = context();
  if (layout_.recorded) return graphs_.Launch(ops_list_, with);
  for (const StepOp& call : ops_list_) {
    BATON_RETURN_IF_ERROR(Prepare(call, with));
    BATON_RETURN_IF_ERROR(Run(call, with));
  }
  return OkStatus();
}

OpContext CudaOps::context() {
  return {.step = layout_,
          .kv = kv_,
          .gemm = *gemm_,
          .attention = *attention_,
          .experts = *experts_,
          .sampling = *sampling_,
          .exchange = exchange_.get(),
          .marks = pending().marks(),
          .stream = stream_};
}

// ---- ops

std::byte* CudaOps::Scratch(ScratchMemory& memory, int64_t bytes, std::string_view what) {
  const auto room = memory.Get(static_cast<size_t>(bytes));
  if (room.ok()) return *room;
  error_ = Annotate(room.status(), fmt::format("scratch memory for {}", what));
  return nullptr;
}

Tensor CudaOps::Padded(const Tensor& tensor) const {
  Tensor padded = tensor;
  if (layout_.recorded && std::cmp_equal(tensor.rows, input_.tokens.size())) {
    padded.rows = layout_.rows;
  }
  return padded;
}

void CudaOps::Embed(const Matrix& table, int32_t first_token, const Tensor& residual) {
  ops_list_.emplace_back(EmbedOp{&Cast(table), first_token, Padded(residual)});
}

void CudaOps::RmsNorm(const Tensor& residual,
                      const Vector& weight,
                      float epsilon,
                      const Tensor& out) {
  ops_list_.emplace_back(NormOp{.residual = Padded(residual),
                                .delta = {},
                                .weight = DataOf(&weight),
                                .epsilon = epsilon,
                                .out = Padded(out)});
}

void CudaOps::AddRmsNorm(const Tensor& residual,
                         const Tensor& delta,
                         const Vector& weight,
                         float epsilon,
                         const Tensor& out) {
  ops_list_.emplace_back(NormOp{.residual = Padded(residual),
                                .delta = Padded(delta),
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
  const CudaMatrix& matrix = Cast(weight);
  const GemmProblem problem = {
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
  if (matrix.dtype() == DType::kFp8) {
    MatMulFp8(problem, matrix.fp8(), x, out);
  } else {
    ops_list_.emplace_back(MatMulOp{problem});
  }
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
  std::byte* const room =
      Scratch(quantized_[next_quantized_], static_cast<int64_t>(bytes), "FP8 activations");
  next_quantized_ = 1 - next_quantized_;
  if (room == nullptr) return;
  const Fp8Rows rows = Fp8Rows::At(room, problem.rows, problem.k);
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
  std::byte* const room = Scratch(gate_up_, Padded(x).rows * cols * 2, "gate and up");
  const Tensor both = {room, DType::kBF16, x.rows, cols, cols};
  MatMul(x, gate_up, bias, both);
  ops_list_.emplace_back(SiluMulOp{.gate_up = Padded(both), .out = Padded(out)});
}

void CudaOps::Experts(const Tensor& x, const ExpertArgs& args, const Tensor& out) {
  const int32_t rank = listed_ == nullptr ? 0 : listed_->place().tensor_rank;
  const int32_t first =
      args.rank_ends.empty() || rank == 0 ? 0 : args.rank_ends[static_cast<size_t>(rank) - 1];
  auto prepared = experts_->Prepare(args, Padded(x).rows, first);
  if (!prepared.ok()) {
    error_ = prepared.status();
    return;
  }
  const bool shared = !args.rank_ends.empty() && listed_ != nullptr;
  // A sum of rounded parts would depend on the number of ranks.
  const bool exact = shared && listed_->mode() == ExchangeMode::kGather;
  Tensor sum = out;
  if (exact) {
    sum.data = Scratch(expert_sums_, Padded(out).rows * out.cols * 4, "the sums of experts");
    sum.dtype = DType::kF32;
    sum.stride = out.cols;
  }
  ops_list_.emplace_back(ExpertsOp{Padded(x), *prepared, Padded(sum)});
  if (shared) listed_->AllReduce(sum);
  if (exact) ops_list_.emplace_back(RoundOp{Padded(sum), Padded(out)});
}

void CudaOps::RopeAndWriteKv(const Tensor& qkv,
                             const HeadShape& heads,
                             const RopeArgs& args,
                             int32_t layer) {
  const auto pairs = args.inverse_frequencies == nullptr
                         ? 0
                         : static_cast<int32_t>(args.inverse_frequencies->size());
  const Tensor padded = Padded(qkv);
  // One buffer is enough: the rope ops that follow an AnglesOp use the angles of that op.
  constexpr auto kAngleBytes = static_cast<int64_t>(sizeof(float2));
  std::byte* const room = Scratch(angles_, padded.rows * pairs * kAngleBytes, "the angles of rope");
  const AnglesOp angles = {.inverse_frequencies = DataOf(args.inverse_frequencies),
                           .pairs = pairs,
                           .magnitude = args.magnitude,
                           .angles = reinterpret_cast<float2*>(room)};
  const auto same = [](const StepOp& call) { return std::holds_alternative<AnglesOp>(call); };
  const auto last = std::find_if(ops_list_.rbegin(), ops_list_.rend(), same);
  if (pairs > 0 && (last == ops_list_.rend() || !(std::get<AnglesOp>(*last) == angles))) {
    ops_list_.emplace_back(angles);
  }
  ops_list_.emplace_back(RopeOp{.qkv = padded,
                                .heads = heads,
                                .pairing = args.pairing,
                                .pairs = pairs,
                                .angles = angles.angles,
                                .q_norm = DataOf(args.q_norm),
                                .k_norm = DataOf(args.k_norm),
                                .norm_epsilon = args.norm_epsilon,
                                .kv_scales = DataOf(args.kv_scales),
                                .layer = layer});
}

void CudaOps::Attention(const Tensor& qkv, const AttentionArgs& args, const Tensor& out) {
  AttentionOp call;
  call.qkv = Padded(qkv);
  call.layer = args.layer;
  call.kv_scales = DataOf(args.kv_scales);
  call.out = Padded(out);
  call.plan.shape = {.q_heads = args.heads.q_heads,
                     .kv_heads = args.heads.kv_heads,
                     .head_dim = args.heads.head_dim,
                     .window = args.window,
                     .scale = args.scale,
                     .only_logit_rows = args.only_logit_rows && !layout_.recorded};
  if (call.out.stride != call.out.cols) {
    call.packed = call.out;
    call.packed.data =
        Scratch(packed_, call.out.rows * call.out.cols * 2, "the result of attention");
    call.packed.stride = call.out.cols;
  }
  ops_list_.emplace_back(call);
}

void CudaOps::GatherLogitRows(const Tensor& x, const Tensor& out) {
  ops_list_.emplace_back(GatherOp{Padded(x), Padded(out)});
}

void CudaOps::Sample(const Tensor& logits,
                     std::span<const SamplingRow> rows,
                     std::span<SampledToken> out) {
  sampling_rows_ = rows;
  pending().sampled = out;
  ops_list_.emplace_back(SampleOp{Padded(logits), {}});
}

void CudaOps::NotifyWhenDone(std::function<void()> notify) {
  const StatusOr<size_t> index = pending().AddCallback(std::move(notify));
  if (!index.ok()) {
    error_ = index.status();
    return;
  }
  ops_list_.emplace_back(NotifyOp{*index});
}

// A block is one contiguous range of memory, so the copies need no kernel. They run in order on the
// stream.
Status CudaOps::CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) {
    for (const int32_t block : {copy.from, copy.to}) {
      if (block < 0 || block >= kv.blocks) {
        return InvalidArgument(
            "copy of block {} to {}; the arena has {}", copy.from, copy.to, kv.blocks);
      }
    }
  }
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  for (const BlockCopy& copy : copies) {
    BATON_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(kv.base + copy.to * kv.block_stride,
                                               kv.base + copy.from * kv.block_stride,
                                               static_cast<size_t>(kv.block_stride),
                                               cudaMemcpyDeviceToDevice,
                                               stream_));
  }
  // While a step is in flight, the copies need no wait: everything that uses the blocks is later on
  // the same stream.
  if (under_way_ == 0) BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_));
  return OkStatus();
}

}  // namespace baton::cuda
