#include "kernels/cuda/step/cuda_ops.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "common/base/check.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/stream.h"
#include "kernels/cuda/experts/experts_kernels.h"
#include "kernels/cuda/graph/fuse_ops.h"
#include "kernels/cuda/sampling/sampling_kernels.h"
#include "kernels/cuda/step/trace_range.h"
#include "kernels/cuda/table/experts_request.h"
#include "kernels/cuda/table/sampling_request.h"

namespace baton::cuda {
namespace {

constexpr size_t kStepBytes = size_t{8} << 20;

// The kernels have room for what the kernel table promises.
static_assert(kMaxExperts >= kMaxExpertCount && kMaxExpertsPerToken >= kMaxExpertsOfRow);
static_assert(kMaxVocabulary >= kMaxSampledTokens);

// The maximum number of steps in flight: on the first rank of a pipeline one for each stage,
// otherwise two.
size_t MaxStepsInFlight(const RankPlace& place) {
  const auto stages = static_cast<size_t>(place.leader() ? place.pipeline_parallel : 1);
  return std::clamp(stages, size_t{2}, Sampling::kSlots);
}

DeviceProperties PropertiesFor(const CudaDevice& device, const CudaOptions& options) {
  DeviceProperties properties = device.properties();
  properties.portable = options.portable_kernels;
  return properties;
}

}  // namespace

CudaOps::CudaOps(CudaDevice& device, const CudaOptions& options)
    : device_(device),
      properties_(PropertiesFor(device, options)),
      options_(options),
      loader_(device, options.fp8_weights),
      family_({.pad = [this](const Tensor& tensor) { return Padded(tensor); },
               .add = [this](const FamilyOp& op) { ops_list_.emplace_back(op); }}),
      latent_({.pad = [this](const Tensor& tensor) { return Padded(tensor); },
               .angles = [this](const Vector& frequencies,
                                float magnitude,
                                int64_t rows) { return Angles(frequencies, magnitude, rows); },
               .place = [this](int32_t layer) { return kv_.PlaceOf(layer); },
               .recorded = [this] { return layout_.recorded; },
               .add = [this](const LatentOp& op) { ops_list_.emplace_back(op); }}),
      recurrent_({.pad = [this](const Tensor& tensor) { return Padded(tensor); },
                  .scratch = [this](int64_t bytes) { return Scratch(bytes); },
                  .place = [this](int32_t layer,
                                  const RecurrentShape& shape) { return StatePlace(layer, shape); },
                  .accepts = [this](const RecurrentShape& shape) { return Accepts(shape); },
                  .decodes = [this](const RecurrentShape& shape) { return DecodesRows(shape); },
                  .chunks = [this](const RecurrentShape& shape) { return ChunksOf(shape); },
                  .add = [this](const RecurrentOp& op) { ops_list_.emplace_back(op); }}),
      pending_(MaxStepsInFlight(PlaceIn(options.groups))) {}

CudaOps::~CudaOps() {
  if (stream_ == nullptr) return;
  if (exchange_ != nullptr && in_flight_ > 0) {
    exchange_->watch().Fail(MakeStatus(StatusCode::kUnavailable, "the backend is closed"));
  }
  for (cudaStream_t const stream : {stream_, late_stream_}) {
    if (stream == nullptr) continue;
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  }
}

StatusOr<std::unique_ptr<CudaOps>> CudaOps::Create(CudaDevice& device, const CudaOptions& options) {
  std::unique_ptr<CudaOps> ops(new CudaOps(device, options));
  BATON_RETURN_IF_ERROR(ops->Create());
  return ops;
}

Status CudaOps::Create() {
  if (options_.fp8_weights) BATON_RETURN_IF_ERROR(CheckFp8Weights(properties_));
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  BATON_RETURN_IF_ERROR(CreateStream(StreamPriority::kGreatest, &stream_));
  for (PendingStep& step : pending_) BATON_RETURN_IF_ERROR(step.Create());
  BATON_ASSIGN_OR_RETURN(gemm_,
                         Gemm::Create(properties_,
                                      {.deterministic = options_.deterministic,
                                       .cache_folder = options_.kernel_cache}));
  BATON_ASSIGN_OR_RETURN(
      attention_, cuda::Attention::Create(properties_, {.deterministic = options_.deterministic}));
  BATON_ASSIGN_OR_RETURN(latents_, LatentAttention::Create(properties_, options_.deterministic));
  BATON_ASSIGN_OR_RETURN(
      experts_, cuda::Experts::Create(properties_, {.deterministic = options_.deterministic}));
  BATON_ASSIGN_OR_RETURN(sampling_, Sampling::Create());
  BATON_ASSIGN_OR_RETURN(fixed_, StepBuffer::Create(kStepBytes, pending_.size()));
  BATON_ASSIGN_OR_RETURN(lists_, StepBuffer::Create(kStepBytes, pending_.size()));
  BATON_ASSIGN_OR_RETURN(sampled_, StepBuffer::Create(kStepBytes, pending_.size()));
  BATON_ASSIGN_OR_RETURN(memory_, GrowingMemory::Create());
  values_ = std::make_unique<ValueSpace>(memory_->data());
  return ConnectRanks();
}

Status CudaOps::ConnectRanks() {
  if (PlaceIn(options_.groups) == RankPlace{}) return OkStatus();
  BATON_ASSIGN_OR_RETURN(exchange_, GroupExchange::Create(options_.groups, properties_));
  if (exchange_->stage_slot_bytes() > 0 && exchange_->place().leader()) {
    BATON_RETURN_IF_ERROR(CreateStream(StreamPriority::kGreatest, &late_stream_));
  }
  row_split_ = RowSplit::Between(*exchange_);
  listed_ = std::make_unique<ListedExchange>(
      ListedExchange::Options{
          .place = exchange_->place(),
          // A rank's outputs then have the bits that one GPU gives them.
          .mode = options_.deterministic ? ExchangeMode::kGather : ExchangeMode::kReduce,
          .slot_bytes = exchange_->slot_bytes(),
          .stage_slot_bytes = exchange_->stage_slot_bytes(),
          .description = exchange_->description()},
      ListedExchange::Step{
          .pad = [this](const Tensor& tensor) { return Padded(tensor); },
          .scratch = [this](size_t bytes) { return values_->Scratch(bytes); },
          .add = [this](ExchangeOp op) { ops_list_.emplace_back(std::move(op)); }});
  return OkStatus();
}

bool CudaOps::supports_fp8_kv() const {
  return SupportsFp8(properties_);
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

StatusOr<PlacedValues> CudaOps::PlaceValues(std::span<const ValueUse> values) {
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  const size_t bytes = PlanMemory(LifetimesOf(values)).bytes;
  BATON_RETURN_IF_ERROR(CheckRoomForValues(bytes, device_));
  PlacedValues placed = {.tensors = values_->Place(values), .memory = nullptr};
  // The largest steps take more, for values that only this backend has.
  BATON_RETURN_IF_ERROR(memory_->Grow(std::max(bytes, values_->results().bytes)));
  fused_ = FusedLists();
  return placed;
}

Status CudaOps::BeginStep(const StepInput& input, const KvView& kv) {
  BATON_CHECK(in_flight_ < pending_.size(), "a step begins while {} are in flight", in_flight_);
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  input_ = input;
  kv_ = kv;
  ops_list_.clear();
  angles_op_.reset();
  sampling_rows_ = {};
  has_late_rows_ = false;
  pending().Clear();
  error_ = OkStatus();
  values_->BeginStep();
  if (listed_ != nullptr) listed_->BeginStep();
  fixed_->Clear();
  lists_->Clear();
  const auto rows = static_cast<int32_t>(input.tokens.size());
  // A recorded step has no copies of states, whose destination changes from step to step.
  const bool recorded = options_.graphs && rows <= kMaxRecordedRows && OnlyDecodes(input) &&
                        input.results == RowResults::kLogits;
  const int32_t padded = recorded ? PaddedDecodeRows(rows) : 0;
  pending().rows = rows;
  pending().padded_rows = recorded ? padded : rows;
  BATON_RETURN_IF_ERROR(layout_.Build(input_, kv_, padded, *fixed_, *lists_));
  is_listed_ = true;
  return OkStatus();
}

Status CudaOps::IssueStep() {
  Status status = StartStep();
  is_listed_ = false;
  ops_list_.clear();
  if (status.ok()) {
    next_ = (next_ + 1) % pending_.size();
    ++in_flight_;
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
  std::vector<StepOp> sampling = HasMasks() ? TakeSampling() : std::vector<StepOp>();
  BATON_RETURN_IF_ERROR(PlanStep());
  BATON_RETURN_IF_ERROR(RunStep());
  if (!sampling.empty()) BATON_RETURN_IF_ERROR(RunSampling(std::move(sampling), stream_));
  if (!pending().sampled.empty()) BATON_RETURN_IF_ERROR(sampling_->Fetch(next_, stream_));
  BATON_CUDA_RETURN_IF_ERROR(pending().End(stream_, /*marked=*/!layout_.recorded));
  return OkStatus();
}

bool CudaOps::StepEnded() const {
  BATON_CHECK(in_flight_ > 0, "StepEnded was called, but no step is in flight");
  const bool aborted = exchange_ != nullptr && !exchange_->watch().status().ok();
  return aborted || pending_[oldest()].ended();
}

Status CudaOps::AwaitStep() {
  BATON_CHECK(in_flight_ > 0, "AwaitStep was called, but no step is in flight");
  const size_t slot = oldest();
  PendingStep& step = pending_[slot];
  const TraceRange range("await step");
  Status ended = step.Await(exchange_ == nullptr ? nullptr : &exchange_->watch());
  if (ended.ok() && !ops_list_.empty()) {
    ended = RunLateOps(step);
    if (!ended.ok()) exchange_->watch().Fail(ended);
  }
  ops_list_.clear();
  --in_flight_;
  if (exchange_ != nullptr) exchange_->watch().End();
  BATON_RETURN_IF_ERROR(ended);
  device_time_ = step.DeviceTime();
  if (!step.sampled.empty()) sampling_->Collect(slot, step.sampled);
  step.TakeCopies();
  return OkStatus();
}

Status CudaOps::PlanOps() {
  BATON_RETURN_IF_ERROR(PlanAttention());
  BATON_RETURN_IF_ERROR(PlanLatents());
  for (StepOp& call : ops_list_) {
    auto* const sample = std::get_if<SampleOp>(&call);
    if (sample == nullptr) continue;
    BATON_ASSIGN_OR_RETURN(sample->plan,
                           sampling_->Plan(sampling_rows_,
                                           static_cast<int32_t>(sample->logits.rows),
                                           static_cast<int32_t>(sample->logits.cols),
                                           *fixed_,
                                           *lists_));
  }
  return OkStatus();
}

Status CudaOps::PlanAttention() {
  std::vector<std::shared_ptr<const AttentionPlan>> plans;  // one for each shape
  for (StepOp& call : ops_list_) {
    auto* const attention = std::get_if<AttentionOp>(&call);
    if (attention == nullptr) continue;
    const auto same = std::ranges::find_if(
        plans, [&](const auto& plan) { return plan->shape == attention->shape; });
    if (same != plans.end()) {
      attention->plan = *same;
      continue;
    }
    BATON_ASSIGN_OR_RETURN(const AttentionPlan plan,
                           attention_->Plan(attention->shape, layout_, kv_, *fixed_));
    attention->plan = plans.emplace_back(std::make_shared<const AttentionPlan>(plan));
  }
  return OkStatus();
}

Status CudaOps::PlanLatents() {
  std::vector<std::shared_ptr<const LatentPlan>> plans;  // one for each kind of layer
  for (StepOp& call : ops_list_) {
    auto* const latent = std::get_if<LatentOp>(&call);
    auto* const attend = latent == nullptr ? nullptr : std::get_if<AttendLatentsOp>(latent);
    if (attend == nullptr) continue;
    const auto same =
        std::ranges::find_if(plans, [&](const auto& plan) { return plan->work == attend->work; });
    if (same != plans.end()) {
      attend->plan = *same;
      continue;
    }
    BATON_ASSIGN_OR_RETURN(const LatentPlan plan,
                           latents_->Plan(attend->work, layout_, kv_, *fixed_));
    attend->plan = plans.emplace_back(std::make_shared<const LatentPlan>(plan));
  }
  return OkStatus();
}

Status CudaOps::FuseList() {
  const bool split = !layout_.recorded;
  if (const std::vector<StepOp>* const fused = fused_.Find(ops_list_, split)) {
    ops_list_ = *fused;
    return OkStatus();
  }
  std::vector<StepOp> listed = ops_list_;
  if (split) SplitRows(ops_list_, layout_.rows, row_split_);
  FuseOps(ops_list_, *gemm_);
  const StepMemory needed = BindMemory(ops_list_, *values_, memory_->data());
  if (const Status grown = memory_->Grow(needed.bytes); !grown.ok()) {
    return Annotate(grown, fmt::format("activations of a step of {} tokens", layout_.rows));
  }
  if (needed.bytes > largest_.bytes) largest_ = needed;
  fused_.Keep(std::move(listed), split, ops_list_);
  return OkStatus();
}

Status CudaOps::PlanStep() {
  const TraceRange range("plan step");
  BATON_RETURN_IF_ERROR(FuseList());
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
  if (layout_.recorded) return graphs_.Launch(ops_list_, context(stream_));
  return RunOps(ops_list_, stream_);
}

// All ops are prepared before the first one runs. Preparing may wait for the device, where an
// exchange may wait for another rank, and the times of kernels would have such waits in them.
Status CudaOps::RunOps(const std::vector<StepOp>& ops, cudaStream_t stream) {
  const OpContext with = context(stream);
  for (const StepOp& op : ops) BATON_RETURN_IF_ERROR(Prepare(op, with));
  for (const StepOp& op : ops) BATON_RETURN_IF_ERROR(Run(op, with));
  return OkStatus();
}

OpContext CudaOps::context(cudaStream_t stream) {
  return {.step = layout_,
          .kv = kv_,
          .gemm = *gemm_,
          .attention = *attention_,
          .latents = *latents_,
          .experts = *experts_,
          .sampling = *sampling_,
          .exchange = exchange_.get(),
          .marks = pending().marks(),
          .copied = pending_[listed()].copied(),
          .stream = stream};
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
  if (in_flight_ == 0) BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_));
  return OkStatus();
}

}  // namespace baton::cuda
