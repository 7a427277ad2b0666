#include "common/model/delta_net_graph.h"

namespace baton {

using graph::StepGraph;
using graph::ValueId;

DeltaNetShape DeltaNetShapeOf(const ModelSpec& spec, const RankPlan& plan) {
  DeltaNetShape shape = spec.delta_net;
  shape.key_heads /= plan.place.tensor_parallel;
  shape.value_heads /= plan.place.tensor_parallel;
  return shape;
}

DeltaNetGraph::DeltaNetGraph(const ModelSpec& spec, const RankPlan& plan, DType dtype)
    : shape_(DeltaNetShapeOf(spec, plan)), norm_epsilon_(spec.norm_epsilon), dtype_(dtype) {}

void DeltaNetGraph::Append(
    ValueId x, const DeltaNetWeights& weights, int32_t layer, ValueId out, StepGraph& graph) const {
  const auto project = [&](const char* name, const Matrix& weight, int64_t cols) {
    const ValueId value =
        graph.Add({.name = name, .dtype = dtype_, .rows = graph::RowCount::kStep, .cols = cols});
    graph.Append(graph::MatMulOp{.x = x, .weight = &weight, .out = value});
    return value;
  };
  const int64_t columns = int64_t{shape_.key_heads} * shape_.input_columns();
  const ValueId input = project("delta_net_input", *weights.input, columns);
  const ValueId gates = project("delta_net_gates", *weights.gates, int64_t{2} * shape_.value_heads);
  graph.Append(graph::DeltaNetOp{.x = input,
                                 .gates = gates,
                                 .args = {.shape = shape_,
                                          .convolution = weights.convolution.get(),
                                          .decay = weights.decay.get(),
                                          .time_bias = weights.time_bias.get(),
                                          .norm = weights.norm.get(),
                                          .norm_epsilon = norm_epsilon_,
                                          .layer = layer},
                                 .out = out});
}

}  // namespace baton
