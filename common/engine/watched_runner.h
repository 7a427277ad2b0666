#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>

#include "common/base/clock.h"
#include "common/engine/model_runner.h"

namespace baton {

// Another runner, and a look at how long its device takes: a GPU that hangs neither ends a step nor
// reports an error, and nobody can call back the thread that waits for it. What warms up takes as
// long as it takes.
class WatchedRunner final : public ModelRunner {
 public:
  // `overdue` is called, on a thread of its own and at most once, when a step has kept `runner` for
  // `limit`. Time in which the whole process stood still does not count. `runner` outlives this.
  WatchedRunner(ModelRunner& runner, Duration limit, std::function<void()> overdue);

  const ModelTraits& traits() const override { return runner_.traits(); }
  Device& device() override { return runner_.device(); }
  bool queues_steps() const override { return runner_.queues_steps(); }
  Status Issue(const StepInput& input,
               const KvView& kv,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch& watch) override;
  Status Await() override;
  Status WarmUpPrompts(const KvView& kv) override { return runner_.WarmUpPrompts(kv); }
  Status WarmUpDecodes(const KvView& kv) override { return runner_.WarmUpDecodes(kv); }
  Status CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) override;

 private:
  class Call;

  ModelRunner& runner_;
  std::atomic<uint64_t> turns_ = 0;  // calls that began and calls that returned; odd in between
  std::jthread thread_;
};

}  // namespace baton
