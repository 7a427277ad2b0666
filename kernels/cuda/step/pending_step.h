#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "kernels/sampling.h"

namespace baton::cuda {

// What stays of a step on a stream until it is awaited: events at its begin, on its way and at its
// end, who is told of them, and where its tokens go. Used for one step after the other. Not
// thread-safe.
class PendingStep final {
 public:
  PendingStep() = default;
  ~PendingStep();
  PendingStep(const PendingStep&) = delete;
  PendingStep& operator=(const PendingStep&) = delete;

  // Once, before all else. Errors: those of CUDA.
  Status Create();

  // Forgets the step that was.
  void Clear();
  // `notify` is called by Await, when the event at the index that this gives has passed.
  StatusOr<size_t> AddCallback(std::function<void()> notify);
  // Events to be recorded on the way, by index.
  std::span<const cudaEvent_t> marks() const { return marks_; }
  cudaError_t Begin(cudaStream_t stream) { return cudaEventRecord(began_, stream); }
  // `marked`: the marks were recorded; else they count as passed when the step ends.
  cudaError_t End(cudaStream_t stream, bool marked);

  // Waits until the step is over, and tells of each mark on the way: the host has nothing else to
  // do, and a callback in the stream would hold the device up.
  Status Await() const;
  // From its begin to its end; zero before it was awaited.
  Duration DeviceTime() const;

  std::span<SampledToken> sampled;

 private:
  cudaEvent_t began_ = nullptr;
  cudaEvent_t ended_ = nullptr;
  std::vector<cudaEvent_t> marks_;  // only grows
  std::vector<std::function<void()>> callbacks_;
  bool marked_ = false;
};

}  // namespace baton::cuda
