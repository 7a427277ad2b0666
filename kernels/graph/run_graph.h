#pragma once

#include <functional>
#include <span>

#include "kernels/graph/step_graph.h"

namespace baton::graph {

// The rows of one step, and the memory of its values.
struct StepRun {
  std::span<const Tensor> values;  // by ValueId; each has at least the rows of its value
  int64_t rows = 0;
  int64_t logit_rows = 0;
  int32_t tensor_rank = 0;  // chooses this rank's columns
  // Called at each KvWrittenOp; may be empty.
  std::function<void(int32_t layer)> kv_written = {};
};

// Calls the ops of a graph one by one, between Ops::BeginStep and Ops::IssueStep. A graph with
// exchanges needs Ops::exchange().
void RunGraph(const StepGraph& graph, const StepRun& run, Ops& ops);

// The memory of all columns of a value of `graph`, for the rows of the step.
Tensor TensorOf(const StepGraph& graph, ValueId id, const StepRun& run);

}  // namespace baton::graph
