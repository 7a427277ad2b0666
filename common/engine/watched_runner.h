#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>

#include "common/base/clock.h"
#include "common/engine/model_runner.h"

namespace baton {

// Wraps a runner and detects a step that does not end. A GPU that hangs neither ends a step nor
// reports an error, and the thread that waits for the GPU cannot be interrupted. Warm-up has no
// time limit.
class WatchedRunner final : public ModelRunner {
 public:
  // Calls `overdue` at most once, on a thread of its own, when a call to `runner` takes longer than
  // `limit`. Time in which the whole process is suspended does not count. `runner` outlives this.
  WatchedRunner(ModelRunner& runner, Duration limit, std::function<void()> overdue);

  const ModelTraits& traits() const override { return runner_.traits(); }
  Device& device() override { return runner_.device(); }
  bool queues_steps() const override { return runner_.queues_steps(); }
  int32_t stages() const override { return runner_.stages(); }
  Duration bubble() const override { return runner_.bubble(); }
  RankTimes times() const override { return runner_.times(); }
  Status Issue(const StepInput& input,
               const KvView& kv,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch& watch) override;
  bool samples_later() const override { return runner_.samples_later(); }
  Status IssueSampling(std::span<const SamplingRow> sampling, std::span<SampledToken> out) override;
  bool has_late_rows() const override { return runner_.has_late_rows(); }
  bool StepEnded() const override { return runner_.StepEnded(); }
  Status Await() override;
  Status WarmUpPrompts(const KvView& kv) override { return runner_.WarmUpPrompts(kv); }
  Status WarmUpDecodes(const KvView& kv) override { return runner_.WarmUpDecodes(kv); }
  Status CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) override;

 private:
  class Call;

  ModelRunner& runner_;
  std::atomic<uint64_t> turns_ = 0;  // calls begun plus calls returned; odd during a call
  std::jthread thread_;
};

}  // namespace baton
