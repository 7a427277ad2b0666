#pragma once

#include <memory>
#include <string>

#include "common/engine/executor.h"
#include "common/engine/options.h"

namespace baton {

// The executor of a model that one device of this process holds whole.
class LocalExecutor final : public Executor {
 public:
  // Warms the runner up and allocates the arena, in the order that lets the arena take the memory
  // which the steps leave free. Errors: InvalidArgument for options that are out of range or do not
  // fit the model; ResourceExhausted when the arena does not fit into memory. `runner` outlives the
  // executor.
  static StatusOr<std::unique_ptr<LocalExecutor>> Create(const KvOptions& options,
                                                         ModelRunner& runner);

  const ModelTraits& traits() const override { return runner_.traits(); }
  const KvLayout& kv_layout() const override { return layout_; }
  int32_t kv_blocks() const override { return view_.blocks; }
  const Buffer& kv_arena() const override { return *arena_; }
  std::string device_name() const override { return runner_.device().name(); }
  bool queues_steps() const override { return runner_.queues_steps(); }
  Status Issue(const StepInput& input,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch& watch) override {
    return runner_.Issue(input, view_, sampling, out, watch);
  }
  Status Await() override { return runner_.Await(); }
  Status CopyBlocks(std::span<const BlockCopy> copies) override {
    return runner_.CopyBlocks(view_, copies);
  }

 private:
  LocalExecutor(const KvLayout& layout,
                int32_t blocks,
                std::unique_ptr<Buffer> arena,
                ModelRunner& runner);

  const KvLayout layout_;
  const std::unique_ptr<Buffer> arena_;
  const KvView view_;
  ModelRunner& runner_;
};

}  // namespace baton
