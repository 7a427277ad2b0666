#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/engine/executor.h"
#include "common/engine/options.h"

namespace baton {

// The part of a model that the executor of one rank holds.
struct RankPart {
  std::optional<KvShard> shard;  // nothing: the whole model
  // Called with the number of blocks that this rank can hold; returns the number of the group.
  // Empty: the rank's own number.
  std::function<StatusOr<int32_t>(int32_t blocks)> agree_on_blocks;
};

// The executor of one rank: one device of this process, with the rank's part of the model.
class LocalExecutor final : public Executor {
 public:
  // Warms the runner up and allocates the arena, in the order that lets the arena take the memory
  // which the steps leave free. Errors: InvalidArgument for options that are out of range or do not
  // fit the model; ResourceExhausted when the arena does not fit into memory; those of
  // `part.agree_on_blocks`. `runner` outlives the executor.
  static StatusOr<std::unique_ptr<LocalExecutor>> Create(const KvOptions& options,
                                                         ModelRunner& runner,
                                                         const RankPart& part = {});

  const ModelTraits& traits() const override { return runner_.traits(); }
  const KvLayout& kv_layout() const override { return layout_; }
  int32_t kv_blocks() const override { return view_.blocks; }
  std::span<const KvArena> kv_arenas() const override { return {&arena_, 1}; }
  std::string device_name() const override { return runner_.device().name(); }
  bool queues_steps() const override { return runner_.queues_steps(); }
  int32_t stages() const override { return runner_.stages(); }
  Duration bubble() const override { return runner_.bubble(); }
  std::vector<RankTimes> rank_times() const override { return {runner_.times()}; }
  Status Issue(const StepInput& input,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch& watch) override {
    return runner_.Issue(input, view_, sampling, out, watch);
  }
  bool samples_later() const override { return runner_.samples_later(); }
  Status IssueSampling(std::span<const SamplingRow> sampling,
                       std::span<SampledToken> out) override {
    return runner_.IssueSampling(sampling, out);
  }
  bool has_late_rows() const override { return runner_.has_late_rows(); }
  bool StepEnded() const override { return runner_.StepEnded(); }
  Status Await() override { return runner_.Await(); }
  Status CopyBlocks(std::span<const BlockCopy> copies) override {
    return runner_.CopyBlocks(view_, copies);
  }

 private:
  LocalExecutor(const KvLayout& layout,
                const KvShard& shard,
                int32_t blocks,
                std::unique_ptr<Buffer> memory,
                ModelRunner& runner);

  const KvLayout layout_;
  const std::unique_ptr<Buffer> memory_;
  const KvArena arena_;
  const KvView view_;
  ModelRunner& runner_;
};

}  // namespace baton
