#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "common/base/check.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/step/cuda_ops.h"
#include "kernels/cuda/step/trace_range.h"
#include "kernels/token_mask.h"

// What is issued after the rest of a step: sampling with masks, which the host computes while the
// device computes the logits; and on the first stage of a pipeline, what needs the logits of the
// last stage.
namespace baton::cuda {
namespace {

// How often the host looks whether the device has computed the logits.
constexpr Duration kLook = std::chrono::microseconds(100);

// Waits for the masks of `rows`, until kMaskWait after the work on `stream` has ended. Returns
// which rows are late.
std::vector<bool> AwaitMasks(std::span<const SamplingRow> rows, cudaStream_t stream) {
  std::vector<bool> late(rows.size(), false);
  Time limit = kNever;
  for (size_t i = 0; i < rows.size(); ++i) {
    const TokenMask* mask = rows[i].mask;
    if (mask == nullptr) continue;
    while (!late[i]) {
      const Time now = std::chrono::steady_clock::now();
      if (mask->WaitUntil(std::min(limit, now + kLook))) break;
      if (limit == kNever && cudaStreamQuery(stream) != cudaErrorNotReady) limit = now + kMaskWait;
      late[i] = now >= limit && !rows[i].waits_for_mask;
      if (now >= limit) limit = now;
    }
  }
  return late;
}

}  // namespace

bool CudaOps::HasMasks() const {
  return std::ranges::any_of(sampling_rows_,
                             [](const SamplingRow& row) { return row.mask != nullptr; });
}

std::vector<StepOp> CudaOps::TakeSampling() {
  const auto first = std::ranges::find_if(
      ops_list_, [](const StepOp& op) { return std::holds_alternative<SampleOp>(op); });
  std::vector<StepOp> taken(std::make_move_iterator(first),
                            std::make_move_iterator(ops_list_.end()));
  ops_list_.erase(first, ops_list_.end());
  return taken;
}

Status CudaOps::RunSampling(std::vector<StepOp> ops, cudaStream_t stream) {
  const TraceRange range("sampling");
  const std::vector<bool> late = AwaitMasks(sampling_rows_, stream);
  has_late_rows_ = std::ranges::find(late, true) != late.end();
  auto& sample = std::get<SampleOp>(ops.front());
  for (bool fits = false; !fits;) {
    sampled_->Clear();
    BATON_ASSIGN_OR_RETURN(sample.plan,
                           sampling_->Plan(sampling_rows_,
                                           static_cast<int32_t>(sample.logits.rows),
                                           static_cast<int32_t>(sample.logits.cols),
                                           *sampled_,
                                           *sampled_,
                                           late));
    BATON_ASSIGN_OR_RETURN(fits, sampled_->Fits());
  }
  BATON_CUDA_RETURN_IF_ERROR(sampled_->Upload(stream));
  return RunOps(ops, stream);
}

// The step now ends after the sampling.
Status CudaOps::IssueSampling() {
  BATON_CHECK(in_flight_ == 1, "sampling is issued while {} steps are in flight", in_flight_);
  const size_t slot = oldest();
  std::vector<StepOp> sampling = std::exchange(ops_list_, {});
  BATON_CUDA_RETURN_IF_ERROR(device_.MakeCurrent());
  BATON_RETURN_IF_ERROR(RunSampling(std::move(sampling), stream_));
  BATON_RETURN_IF_ERROR(sampling_->Fetch(slot, stream_));
  BATON_CUDA_RETURN_IF_ERROR(pending_[slot].EndAgain(stream_));
  return OkStatus();
}

// The logits come through a message of the last stage, for which the host waits: a kernel that
// waits would keep an SM from the later steps, which this device computes meanwhile.
Status CudaOps::RunLateOps(PendingStep& step) {
  const TraceRange range("late ops");
  BATON_RETURN_IF_ERROR(error_);
  BATON_RETURN_IF_ERROR(exchange_->AwaitMessage(late_stream_));
  std::vector<StepOp> sampling = TakeSampling();
  BATON_RETURN_IF_ERROR(RunOps(ops_list_, late_stream_));
  if (!sampling.empty()) {
    BATON_RETURN_IF_ERROR(RunSampling(std::move(sampling), late_stream_));
    BATON_RETURN_IF_ERROR(sampling_->Fetch(oldest(), late_stream_));
  }
  BATON_CUDA_RETURN_IF_ERROR(step.EndAgain(late_stream_));
  return step.AwaitEnd(&exchange_->watch());
}

}  // namespace baton::cuda
