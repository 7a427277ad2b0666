#include "common/model/recurrent_graph.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace baton {

using graph::StepGraph;
using graph::ValueId;

RecurrentShape RecurrentShapeOf(const ModelSpec& spec, const RankPlan& plan) {
  RecurrentShape shape = spec.recurrent.shape;
  shape.key_heads /= plan.place.tensor_parallel;
  shape.value_heads /= plan.place.tensor_parallel;
  shape.key_copies = std::min(shape.key_copies, std::max(1, shape.key_heads));
  return shape;
}

namespace {

// RecurrentArgs::first_value.
int64_t FirstValueOf(const RankPlan& plan) {
  const auto rank = static_cast<size_t>(plan.place.tensor_rank);
  return rank == 0 || plan.ends.recurrent.empty() ? 0 : plan.ends.recurrent[rank - 1];
}

graph::Value WithShare(graph::Value value, graph::Share share) {
  value.share = std::move(share);
  return value;
}

}  // namespace

RecurrentGraph::RecurrentGraph(const ModelSpec& spec,
                               const RankPlan& plan,
                               graph::Value outputs,
                               graph::Share share)
    : spec_(spec.recurrent),
      shape_(RecurrentShapeOf(spec, plan)),
      outputs_(WithShare(std::move(outputs), std::move(share))),
      norm_epsilon_(spec.norm_epsilon),
      reduces_(plan.tensor_parallel() && plan.mode == ExchangeMode::kReduce),
      first_value_(FirstValueOf(plan)) {}

RecurrentArgs RecurrentGraph::ArgsOf(const RecurrentWeights& weights, int32_t layer) const {
  return {.shape = shape_,
          .convolution = weights.convolution.get(),
          .convolution_bias = weights.convolution_bias.get(),
          .decay = weights.decay.get(),
          .time_bias = weights.time_bias.get(),
          .skip = weights.skip.get(),
          .norm = weights.norm.get(),
          .norm_epsilon = norm_epsilon_,
          .gate_scale = spec_.gate_scale,
          .time_scale = spec_.time_scale,
          .min_time = spec_.min_time,
          .max_time = spec_.max_time,
          .first_value = first_value_,
          .layer = layer};
}

ValueId RecurrentGraph::Project(
    const char* name, ValueId x, const Matrix& weight, int64_t cols, StepGraph& graph) const {
  const ValueId out = graph.Add(
      {.name = name, .dtype = outputs_.dtype, .rows = graph::RowCount::kStep, .cols = cols});
  graph.Append(graph::MatMulOp{.x = x, .weight = &weight, .out = out});
  return out;
}

ValueId RecurrentGraph::Append(ValueId x,
                               const RecurrentWeights& weights,
                               int32_t layer,
                               StepGraph& graph) const {
  if (shape_.rule == RecurrentRule::kChannelDelta) {
    return AppendChannelDelta(x, weights, layer, graph);
  }
  if (shape_.rule == RecurrentRule::kSelectiveScan) {
    return AppendSelectiveScan(x, weights, layer, graph);
  }
  const ValueId input =
      Project("recurrent_input", x, *weights.input, shape_.input_columns(), graph);
  const ValueId gates = Project("recurrent_gates", x, *weights.gates, shape_.gate_columns(), graph);
  const ValueId out = graph.Add(outputs_);
  graph.Append(
      graph::RecurrentOp{.x = input, .gates = gates, .args = ArgsOf(weights, layer), .out = out});
  return out;
}

ValueId RecurrentGraph::AppendChannelDelta(ValueId x,
                                           const RecurrentWeights& weights,
                                           int32_t layer,
                                           StepGraph& graph) const {
  const int64_t rank = spec_.latent_rank;
  const ValueId input =
      Project("recurrent_input", x, *weights.input, shape_.input_columns(), graph);
  const ValueId times = Project("recurrent_latent", x, *weights.time_down, rank, graph);
  const ValueId gates =
      Project("recurrent_gates", times, *weights.gates, shape_.gate_columns(), graph);
  const ValueId out = graph.Add(outputs_);
  graph.Append(
      graph::RecurrentOp{.x = input, .gates = gates, .args = ArgsOf(weights, layer), .out = out});
  const ValueId latent = Project("recurrent_latent", x, *weights.gate_down, rank, graph);
  const ValueId gate =
      Project("recurrent_gate", latent, *weights.gate, shape_.value_numbers(), graph);
  const ValueId gated = graph.Add(outputs_);
  graph.Append(graph::SigmoidGateOp{.x = out, .gate = gate, .out = gated});
  return gated;
}

ValueId RecurrentGraph::ProjectNormed(
    const char* name, ValueId v, const Matrix& weight, const Vector& norm, StepGraph& graph) const {
  graph::Value value = {
      .name = name, .dtype = outputs_.dtype, .rows = graph::RowCount::kStep, .cols = norm.size()};
  const ValueId normed = graph.Add(value);
  // A rank has v of its heads, or all of it.
  if (reduces_) value.share = graph::Summand{};
  const ValueId projected = graph.Add(value);
  graph.Append(graph::MatMulOp{.x = v, .weight = &weight, .out = projected});
  graph.Append(
      graph::NormOp{.x = projected, .weight = &norm, .epsilon = norm_epsilon_, .out = normed});
  return normed;
}

ValueId RecurrentGraph::AppendSelectiveScan(ValueId x,
                                            const RecurrentWeights& weights,
                                            int32_t layer,
                                            StepGraph& graph) const {
  const int64_t values = shape_.value_numbers();
  const RecurrentArgs args = ArgsOf(weights, layer);
  const ValueId input = Project("recurrent_input", x, *weights.input, values, graph);
  const ValueId v = graph.Add(outputs_);
  graph.Append(graph::ConvolveOp{.x = input, .args = args, .out = v});
  const ValueId latent =
      ProjectNormed("recurrent_latent", v, *weights.time_down, *weights.time_norm, graph);
  const ValueId k = ProjectNormed("recurrent_k", v, *weights.k, *weights.k_norm, graph);
  const ValueId q = ProjectNormed("recurrent_q", v, *weights.q, *weights.q_norm, graph);
  const ValueId gates = Project("recurrent_gates", latent, *weights.gates, values, graph);
  const ValueId out = graph.Add(outputs_);
  graph.Append(graph::ScanOp{.v = v, .gates = gates, .k = k, .q = q, .args = args, .out = out});
  const ValueId z = graph.Add(outputs_);
  graph.Append(graph::MatMulOp{.x = x, .weight = weights.gate.get(), .out = z});
  const ValueId activated = graph.Add(outputs_);
  graph.Append(graph::ActivateOp{.x = z, .activation = Activation::kSilu, .out = activated});
  const ValueId gated = graph.Add(outputs_);
  graph.Append(graph::MultiplyOp{.x = out, .factors = activated, .out = gated});
  return gated;
}

}  // namespace baton
