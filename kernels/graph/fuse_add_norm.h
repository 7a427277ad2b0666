#pragma once

#include "kernels/graph/step_graph.h"

namespace baton::graph {

// Makes one AddNormOp of an AddOp and a NormOp of its sum that follows it at once. The bits stay
// the same.
void FuseAddNorm(StepGraph& graph);

}  // namespace baton::graph
