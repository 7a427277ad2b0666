#pragma once

#include "common/model/model_spec.h"
#include "common/model/rank_plan.h"
#include "kernels/graph/step_graph.h"

namespace baton {

// The values of a decoder on one rank, by their kind. `dtype` is that of activations.
struct DecoderValues {
  DecoderValues(const ModelSpec& spec, const RankPlan& plan, DType dtype);

  graph::Value residual, normed, qkv, squares, attention, attention_gate, recurrent, delta,
      feed_forward, shared, gate, logits, states, signal;
};

}  // namespace baton
