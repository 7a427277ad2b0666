#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/engine/step_plan.h"
#include "kernels/ops.h"
#include "kernels/sampling.h"

namespace baton {

// A StepPlan as the input of kernels. Reuses its memory from step to step. input() and sampling()
// are views into this object and into the plan's sequences; they are valid until either changes.
// Belongs to one thread.
class Batch final {
 public:
  // Builds input(); sampling() is empty.
  void Build(const StepPlan& plan);
  // Builds sampling(). The output tokens of the plan's sequences are known, and their masks have
  // begun. Rows whose sequences have ended since the step was issued choose any token. `states`
  // has room for the plan's hidden states, in the order of its rows (StepPlan::state_rows).
  void BuildSampling(const StepPlan& plan, std::span<float> states);

  StepInput input() const;
  std::span<const SamplingRow> sampling() const { return sampling_; }

 private:
  void AddRow(const PlanRow& row);
  void AddStates(const PlanRow& row, size_t first_sequence);
  void AddSampling(const PlanRow& row);
  void AddPooled(const PlanRow& row, size_t width, std::span<float>& states);

  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
  std::vector<SequenceRows> sequences_;
  std::vector<int32_t> block_tables_;
  std::vector<int32_t> logit_rows_;
  RowResults results_ = RowResults::kLogits;
  int32_t state_blocks_ = 0;
  std::vector<SamplingRow> sampling_;
};

}  // namespace baton
