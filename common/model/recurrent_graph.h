#pragma once

#include <cstdint>

#include "common/model/decoder_values.h"
#include "common/model/decoder_weights.h"
#include "common/model/model_spec.h"
#include "common/model/rank_plan.h"
#include "kernels/graph/step_graph.h"
#include "kernels/recurrent_ops.h"

namespace baton {

// The part of one rank. Without key heads if no layer is recurrent.
RecurrentShape RecurrentShapeOf(const ModelSpec& spec, const RankPlan& plan);

// Appends the ops of recurrent layers on one rank to graphs of steps. The weights of layers outlive
// the graphs.
class RecurrentGraph final {
 public:
  // `outputs` is the value of the outputs of all heads, and `share` what a rank computes of it.
  RecurrentGraph(const ModelSpec& spec,
                 const RankPlan& plan,
                 graph::Value outputs,
                 graph::Share share);

  // Updates the states with all rows of x. Returns the outputs of all heads. `layer` is the cache
  // layer of the rank.
  graph::ValueId Append(graph::ValueId x,
                        const RecurrentWeights& weights,
                        int32_t layer,
                        graph::StepGraph& graph) const;

 private:
  RecurrentArgs ArgsOf(const RecurrentWeights& weights, int32_t layer) const;
  graph::ValueId AppendChannelDelta(graph::ValueId x,
                                    const RecurrentWeights& weights,
                                    int32_t layer,
                                    graph::StepGraph& graph) const;
  graph::ValueId AppendSelectiveScan(graph::ValueId x,
                                     const RecurrentWeights& weights,
                                     int32_t layer,
                                     graph::StepGraph& graph) const;
  // weight · x, of all rows.
  graph::ValueId Project(const char* name,
                         graph::ValueId x,
                         const Matrix& weight,
                         int64_t cols,
                         graph::StepGraph& graph) const;
  graph::ValueId ProjectNormed(const char* name,
                               graph::ValueId v,
                               const Matrix& weight,
                               const Vector& norm,
                               graph::StepGraph& graph) const;

  const RecurrentSpec& spec_;
  const RecurrentShape shape_;
  const graph::Value outputs_;
  const float norm_epsilon_;
  const bool reduces_;
  const int64_t first_value_;
};

}  // namespace baton
