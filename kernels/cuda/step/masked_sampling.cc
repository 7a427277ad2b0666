#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/step/cuda_ops.h"
#include "kernels/cuda/step/trace_range.h"
#include "kernels/token_mask.h"

// Sampling of steps in which rows have masks: the host computes the masks while the device computes
// the logits, so the sampling is issued after all else.
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

std::vector<StepOp> CudaOps::TakeMaskedSampling() {
  const auto masked = [](const SamplingRow& row) { return row.mask != nullptr; };
  if (std::ranges::none_of(sampling_rows_, masked)) return {};
  const auto first = std::ranges::find_if(
      ops_list_, [](const StepOp& op) { return std::holds_alternative<SampleOp>(op); });
  std::vector<StepOp> taken(std::make_move_iterator(first),
                            std::make_move_iterator(ops_list_.end()));
  ops_list_.erase(first, ops_list_.end());
  return taken;
}

Status CudaOps::RunMaskedSampling(std::vector<StepOp> ops) {
  const TraceRange range("masked sampling");
  const std::vector<bool> late = AwaitMasks(sampling_rows_, stream_);
  auto& sample = std::get<SampleOp>(ops.front());
  for (bool fits = false; !fits;) {
    masked_->Clear();
    BATON_ASSIGN_OR_RETURN(sample.plan,
                           sampling_->Plan(sampling_rows_,
                                           static_cast<int32_t>(sample.logits.rows),
                                           static_cast<int32_t>(sample.logits.cols),
                                           *masked_,
                                           *masked_,
                                           late));
    BATON_ASSIGN_OR_RETURN(fits, masked_->Fits());
  }
  BATON_CUDA_RETURN_IF_ERROR(masked_->Upload(stream_));
  const OpContext with = context();
  for (const StepOp& op : ops) {
    BATON_RETURN_IF_ERROR(Prepare(op, with));
    BATON_RETURN_IF_ERROR(Run(op, with));
  }
  return OkStatus();
}

}  // namespace baton::cuda
