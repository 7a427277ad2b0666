#include "tests/unit/model/ranked_runner.h"

#include <thread>

namespace baton {

StatusOr<std::unique_ptr<RankedRunner>> RankedRunner::Create(const ModelSpec& spec,
                                                             const WeightSource& weights,
                                                             const Degrees& degrees,
                                                             const RunnerOptions& options) {
  std::unique_ptr<RankedRunner> group(new RankedRunner());
  for (int32_t stage = 0; stage < degrees.pipeline; ++stage) {
    group->tensor_groups_.push_back(std::make_unique<ThreadGroup>(degrees.tensor));
  }
  for (int32_t rank = 0; rank < degrees.tensor; ++rank) {
    group->pipeline_groups_.push_back(std::make_unique<ThreadGroup>(degrees.pipeline));
  }
  for (int32_t rank = 0; rank < degrees.ranks(); ++rank) {
    const RankPlace place = RankPlace::Of(degrees.tensor, degrees.pipeline, rank);
    RunnerOptions one = options;
    one.groups = {.tensor = group->tensor_group(place.stage).rank(place.tensor_rank),
                  .pipeline = group->pipeline_group(place.tensor_rank).rank(place.stage)};
    BATON_ASSIGN_OR_RETURN(auto runner, StepRunner::Create(spec, weights, one));
    group->runners_.push_back(std::move(runner));
  }
  return group;
}

StatusOr<std::vector<Logits>> RankedRunner::Step(std::span<const Chunk> chunks,
                                                 const LayerHook& hook) {
  std::vector<StatusOr<std::vector<Logits>>> results(runners_.size());
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < runners_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        results[rank] = runners_[rank]->TryStep(chunks, rank == 0 ? hook : LayerHook{});
      });
    }
  }
  errors_.clear();
  for (const auto& result : results) errors_.push_back(result.status());
  for (const auto& result : results) BATON_RETURN_IF_ERROR(result.status());
  return std::move(results.front());
}

StatusOr<std::vector<std::vector<Logits>>> RankedRunner::StepsUnderWay(
    std::span<const std::vector<Chunk>> steps) {
  StatusOr<std::vector<std::vector<Logits>>> result;
  errors_.assign(runners_.size(), OkStatus());
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 1; rank < runners_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        for (const std::vector<Chunk>& step : steps) {
          errors_[rank] = runners_[rank]->TryStep(step).status();
          if (!errors_[rank].ok()) return;
        }
      });
    }
    result = LeadSteps(steps);
  }
  errors_[0] = result.status();
  for (const Status& error : errors_) BATON_RETURN_IF_ERROR(error);
  return result;
}

StatusOr<std::vector<std::vector<Logits>>> RankedRunner::LeadSteps(
    std::span<const std::vector<Chunk>> steps) {
  std::vector<std::vector<Logits>> taken;
  size_t issued = 0;
  while (taken.size() < steps.size()) {
    for (; issued < steps.size() && issued < taken.size() + pipeline_groups_[0]->size(); ++issued) {
      BATON_RETURN_IF_ERROR(runners_[0]->Issue(steps[issued]));
    }
    BATON_ASSIGN_OR_RETURN(taken.emplace_back(), runners_[0]->Take());
  }
  return taken;
}

void RankedRunner::Reset() {
  for (const auto& runner : runners_) runner->Reset();
}

}  // namespace baton
