#pragma once

#include <cstdint>

#include "common/model/decoder_weights.h"
#include "common/model/model_spec.h"
#include "common/model/rank_plan.h"
#include "kernels/delta_net_ops.h"
#include "kernels/graph/step_graph.h"

namespace baton {

// The part of one rank. Without key heads if no layer has a delta net.
DeltaNetShape DeltaNetShapeOf(const ModelSpec& spec, const RankPlan& plan);

// Appends the ops of gated delta nets on one rank to graphs of steps. The weights of layers outlive
// the graphs.
class DeltaNetGraph final {
 public:
  DeltaNetGraph(const ModelSpec& spec, const RankPlan& plan, DType dtype);

  // Writes the outputs of all heads for x into `out`, and the state. `layer` is that of the rank.
  void Append(graph::ValueId x,
              const DeltaNetWeights& weights,
              int32_t layer,
              graph::ValueId out,
              graph::StepGraph& graph) const;

 private:
  const DeltaNetShape shape_;
  const float norm_epsilon_;
  const DType dtype_;
};

}  // namespace baton
