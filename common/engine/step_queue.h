#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/engine/sequence.h"
#include "common/engine/step_plan.h"
#include "common/kvcache/copy_sources.h"
#include "kernels/sampling.h"

namespace baton {

// A step from its plan to its end.
struct QueuedStep {
  StepPlan plan;
  CopySources copied;  // by the plan's copies
  // The requests and leases that ended while this step was the newest one under way. They are kept
  // until the step ends, because its rows point to the requests and the device may still write the
  // blocks.
  std::vector<std::unique_ptr<ActiveRequest>> ended_requests;
  std::vector<Lease> ended_leases;
  // The engine's part: the tokens that the step chooses, whether and when it was issued, and when
  // the step before it ended, or the engine began to issue it.
  std::vector<SampledToken> sampled;
  std::vector<float> states;  // StepPlan::state_rows hidden states
  Status issued;
  bool samples_later = false;  // it was issued without its sampling
  Time issued_at{};
  Time begin{};
  int32_t layers_done = 0;   // layers whose KV is in memory, as far as LayerWatch reported
  bool layers_told = false;  // the listener received OnKvLayers for the plan's chunks

  void Clear() {
    plan.Clear();
    copied.Clear();
    ended_requests.clear();
    ended_leases.clear();
    sampled.clear();
    states.clear();
    issued = OkStatus();
    samples_later = false;
    issued_at = Time{};
    begin = Time{};
    layers_done = 0;
    layers_told = false;
  }
};

// The steps under way, oldest first. The steps keep their memory for later steps.
class StepQueue final {
 public:
  static constexpr size_t kMaxSteps = 8;

  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == kMaxSteps; }
  size_t size() const { return size_; }
  // 0 is the oldest step.
  QueuedStep& operator[](size_t index) { return steps_[(oldest_ + index) % kMaxSteps]; }
  const QueuedStep& operator[](size_t index) const { return steps_[(oldest_ + index) % kMaxSteps]; }
  QueuedStep& oldest() { return (*this)[0]; }
  QueuedStep& newest() { return (*this)[size_ - 1]; }

  // Returns an empty step, which is not under way before Push. The queue must not be full.
  QueuedStep& Prepare() {
    BATON_CHECK(!full(), "there are already {} steps under way", size_);
    QueuedStep& step = (*this)[size_];
    step.Clear();
    return step;
  }
  // The step that Prepare returned last, before Push.
  QueuedStep& prepared() { return (*this)[size_]; }
  // The prepared step is under way from now on.
  void Push() { ++size_; }
  // The oldest step is no longer under way. Returns the step, which is valid until Prepare.
  QueuedStep& Pop() {
    QueuedStep& step = oldest();
    oldest_ = (oldest_ + 1) % kMaxSteps;
    --size_;
    return step;
  }

 private:
  std::array<QueuedStep, kMaxSteps> steps_;
  size_t oldest_ = 0;
  size_t size_ = 0;
};

}  // namespace baton
