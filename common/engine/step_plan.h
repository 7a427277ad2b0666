#pragma once

#include <cstdint>
#include <vector>

#include "common/engine/outcomes.h"
#include "common/engine/sequence.h"
#include "common/engine/step_time.h"
#include "kernels/ops.h"

namespace baton {

// Tokens [first, first + count) of one sequence, to be computed in this step. `samples` tokens are
// then chosen from the last one's logits: 0 inside a prompt, else 1, or one for each sample of a
// request that is not forked yet.
struct PlanRow {
  Sequence* sequence = nullptr;
  int32_t first = 0;
  int32_t count = 0;
  int32_t samples = 0;
};

// What one step computes: first `copies`, in order, then `rows`.
struct StepPlan {
  std::vector<PlanRow> rows;
  std::vector<BlockCopy> copies;
  std::vector<Outcomes::Chunk> chunks;  // final when the step has run; leased to their hand-offs
  int32_t tokens = 0;                   // of all rows
  int32_t logit_rows = 0;               // samples of all rows
  int32_t preempted = 0;                // sequences sent back to the queue to make room
  StepWork work;                        // of all rows
  // The tokens it will choose have a place in their sequences (as ChosenBefore), since the plan
  // behind it computes them.
  bool foreseen = false;

  void Clear() {
    rows.clear();
    copies.clear();
    chunks.clear();
    tokens = logit_rows = preempted = 0;
    work = {};
    foreseen = false;
  }
};

}  // namespace baton
