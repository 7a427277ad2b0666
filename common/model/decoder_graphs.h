#pragma once

#include "common/model/decoder_weights.h"
#include "common/model/model_spec.h"
#include "common/model/rank_plan.h"
#include "kernels/graph/step_graph.h"

namespace baton {

// The graphs of one kind of step, on one rank.
struct StepGraphs {
  // The rank's own stage. Its result are the logits, on the leader if it is the last stage, too.
  graph::StepGraph stage;
  // What the leader of a pipeline receives of the last stage. Its result are the logits; without
  // logits, the message shows that all stages have finished.
  graph::StepGraph answer;
};

struct DecoderGraphs {
  StepGraphs with_logits;
  StepGraphs without_logits;
};

// The graphs of a decoder whose layers are spec.layers. Activations have `dtype`, the residual
// stream and the logits are float32. The graphs refer to `weights`, which must outlive them.
DecoderGraphs BuildDecoderGraphs(const ModelSpec& spec,
                                 const RankPlan& plan,
                                 const DecoderWeights& weights,
                                 DType dtype);

}  // namespace baton
