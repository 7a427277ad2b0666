#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tests/fakes/thread_collective.h"
#include "tests/unit/model/step_runner.h"

namespace baton {

struct Degrees {
  int32_t tensor = 1;
  int32_t pipeline = 1;

  int32_t ranks() const { return tensor * pipeline; }
};

// A group of ranks that are threads of this process and run every step together, for tests.
class RankedRunner final {
 public:
  // The error of the first rank that cannot load its part of the model.
  static StatusOr<std::unique_ptr<RankedRunner>> Create(const ModelSpec& spec,
                                                        const WeightSource& weights,
                                                        const Degrees& degrees,
                                                        const RunnerOptions& options = {});

  // Runs the step on all ranks. Returns the logits of the leader. `hook` is called on the leader.
  StatusOr<std::vector<Logits>> Step(std::span<const Chunk> chunks, const LayerHook& hook = {});
  // Runs the steps on all ranks. The leader issues one step for each stage, or all steps when
  // there are fewer, before it takes the logits of the oldest one. Returns the logits of each step.
  StatusOr<std::vector<std::vector<Logits>>> StepsUnderWay(
      std::span<const std::vector<Chunk>> steps);
  // Removes all sequences.
  void Reset();

  int32_t ranks() const { return static_cast<int32_t>(runners_.size()); }
  StepRunner& rank(int32_t rank) { return *runners_[static_cast<size_t>(rank)]; }
  // The group of the tensor-parallel ranks of a stage, and of all stages of a tensor rank.
  ThreadGroup& tensor_group(int32_t stage) { return *tensor_groups_[static_cast<size_t>(stage)]; }
  ThreadGroup& pipeline_group(int32_t tensor_rank) {
    return *pipeline_groups_[static_cast<size_t>(tensor_rank)];
  }
  // The errors of all ranks in the last step.
  const std::vector<Status>& errors() const { return errors_; }

 private:
  RankedRunner() = default;
  StatusOr<std::vector<std::vector<Logits>>> LeadSteps(std::span<const std::vector<Chunk>> steps);

  std::vector<std::unique_ptr<ThreadGroup>> tensor_groups_;
  std::vector<std::unique_ptr<ThreadGroup>> pipeline_groups_;
  std::vector<std::unique_ptr<StepRunner>> runners_;
  std::vector<Status> errors_;
};

}  // namespace baton
