#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "kernels/cuda/device/pinned_memory.h"
#include "kernels/cuda/exchange/exchange_watch.h"
#include "kernels/sampling.h"
#include "kernels/tensor.h"

namespace baton::cuda {

// The state of an issued step until it is awaited: events at its start, after some of its ops
// (marks) and at its end, the callbacks of the marks, and the destination of its tokens. One object
// serves one step after another. Not thread-safe.
class PendingStep final {
 public:
  PendingStep() = default;
  ~PendingStep();
  PendingStep(const PendingStep&) = delete;
  PendingStep& operator=(const PendingStep&) = delete;

  // Call once, before any other method. Errors: those of CUDA.
  Status Create();

  // Discards the callbacks and the destination of the last step.
  void Clear();
  // Adds a mark and returns its index. Await calls `notify` once the mark's event has occurred.
  StatusOr<size_t> AddCallback(std::function<void()> notify);
  // The events of the marks, by index.
  std::span<const cudaEvent_t> marks() const { return marks_; }
  cudaError_t Begin(cudaStream_t stream) { return cudaEventRecord(began_, stream); }
  // `marked`: the events of the marks were recorded. Otherwise the marks occur when the step ends.
  cudaError_t End(cudaStream_t stream, bool marked);

  // Waits until the step has finished, and calls the callback of each mark when the mark occurs.
  // The waiting thread does so because a host function on the stream would delay the device. With
  // `watch`, which may be null, returns the reason when the exchanges are aborted, and then calls
  // no callback.
  Status Await(const ExchangeWatch* watch) const;
  // Work that was issued to `stream` after Await belongs to the step, too; AwaitEnd waits for it.
  cudaError_t EndAgain(cudaStream_t stream) { return cudaEventRecord(ended_, stream); }
  Status AwaitEnd(const ExchangeWatch* watch) const;
  // Whether Await would return without waiting.
  bool ended() const;
  // The time from the step's start to its end; valid after Await.
  Duration DeviceTime() const;

  // Makes room for a copy of `x`, whose row i goes to to[i]. Errors: ResourceExhausted.
  Status PrepareCopy(const Tensor& x, std::span<const std::span<float>> to);
  std::byte* copied() const { return copied_.data(); }
  // Widens the copied rows to their destinations; after Await.
  void TakeCopies() const;

  std::span<SampledToken> sampled;  // destination of the step's tokens; empty: none
  int32_t rows = 0;                 // of the step, and with the padding rows after them
  int32_t padded_rows = 0;

 private:
  cudaEvent_t began_ = nullptr;
  cudaEvent_t ended_ = nullptr;
  std::vector<cudaEvent_t> marks_;  // only grows
  std::vector<std::function<void()>> callbacks_;
  bool marked_ = false;
  PinnedMemory copied_;  // [rows][copied_cols_] of copied_type_
  DType copied_type_ = DType::kF32;
  size_t copied_cols_ = 0;
  std::vector<std::span<float>> copies_;  // by row; empty: none
};

}  // namespace baton::cuda
