#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/engine/executor.h"

namespace baton {

// Passes all calls to another executor, which outlives the object. Classes derived from it observe
// or change some of the calls.
class ForwardingExecutor : public Executor {
 public:
  explicit ForwardingExecutor(Executor& executor) : executor_(executor) {}

  const ModelTraits& traits() const override { return executor_.traits(); }
  const KvLayout& kv_layout() const override { return executor_.kv_layout(); }
  int32_t kv_blocks() const override { return executor_.kv_blocks(); }
  std::span<const KvArena> kv_arenas() const override { return executor_.kv_arenas(); }
  std::string device_name() const override { return executor_.device_name(); }
  bool queues_steps() const override { return executor_.queues_steps(); }
  int32_t stages() const override { return executor_.stages(); }
  Duration bubble() const override { return executor_.bubble(); }
  std::vector<RankTimes> rank_times() const override { return executor_.rank_times(); }
  Status Issue(const StepInput& input,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch& watch) override {
    return executor_.Issue(input, sampling, out, watch);
  }
  bool samples_later() const override { return executor_.samples_later(); }
  Status IssueSampling(std::span<const SamplingRow> sampling,
                       std::span<SampledToken> out) override {
    return executor_.IssueSampling(sampling, out);
  }
  bool has_late_rows() const override { return executor_.has_late_rows(); }
  bool StepEnded() const override { return executor_.StepEnded(); }
  Status Await() override { return executor_.Await(); }
  Status CopyBlocks(std::span<const BlockCopy> copies) override {
    return executor_.CopyBlocks(copies);
  }

 private:
  Executor& executor_;
};

}  // namespace baton
