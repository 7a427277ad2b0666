#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/model/decoder_weights.h"
#include "common/model/model_spec.h"
#include "common/model/rank_plan.h"
#include "kernels/graph/step_graph.h"
#include "kernels/step_input.h"

namespace baton {

// The graphs of one kind of step, on one rank.
struct StepGraphs {
  // The rank's own stage. On the leader, if it is the last stage, too, its results are the wanted
  // ones of the logits and the states, in this order.
  graph::StepGraph stage;
  // What the leader of a pipeline receives of the last stage: the same results; without results,
  // the message shows that all stages have finished.
  graph::StepGraph answer;
};

// By StepKindOf.
using DecoderGraphs = std::array<StepGraphs, 4>;

// The kind of a step: 0 without logit rows, else by what is wanted of them.
constexpr size_t StepKindOf(int64_t logit_rows, RowResults results) {
  return logit_rows == 0 ? 0 : 1 + static_cast<size_t>(results);
}

// The graphs of a decoder whose layers are spec.layers. Activations have `dtype`, the residual
// stream and the logits are float32. The graphs refer to `weights`, which must outlive them.
DecoderGraphs BuildDecoderGraphs(const ModelSpec& spec,
                                 const RankPlan& plan,
                                 const DecoderWeights& weights,
                                 DType dtype);

}  // namespace baton
