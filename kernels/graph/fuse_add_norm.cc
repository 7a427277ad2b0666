#include "kernels/graph/fuse_add_norm.h"

#include <cstddef>
#include <variant>
#include <vector>

namespace baton::graph {

void FuseAddNorm(StepGraph& graph) {
  std::vector<Op> ops = graph.TakeOps();
  for (size_t i = 0; i < ops.size(); ++i) {
    const auto* const add = std::get_if<AddOp>(&ops[i]);
    const auto* const norm = i + 1 < ops.size() ? std::get_if<NormOp>(&ops[i + 1]) : nullptr;
    if (add == nullptr || norm == nullptr || norm->x != add->out) {
      graph.Append(ops[i]);
      continue;
    }
    graph.Append(AddNormOp{.residual = add->residual,
                           .delta = add->delta,
                           .sum = add->out,
                           .weight = norm->weight,
                           .epsilon = norm->epsilon,
                           .out = norm->out});
    ++i;
  }
}

}  // namespace baton::graph
