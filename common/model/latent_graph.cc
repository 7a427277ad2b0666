#include "common/model/latent_graph.h"

#include <algorithm>
#include <cmath>

namespace baton {

using graph::StepGraph;
using graph::ValueId;

namespace {

// Of the norms of latents. It is not that of the configuration, which the other norms have.
constexpr float kNormEpsilon = 1e-6f;

// All layers with latents alike.
bool Rotates(const ModelSpec& spec) {
  return std::ranges::any_of(spec.layers, &LayerSpec::rotary);
}

}  // namespace

LatentShape LatentShapeOf(const ModelSpec& spec, const RankPlan& plan) {
  const LatentSpec& latent = spec.latent;
  return {.heads = plan.heads.q_heads,
          .rank = latent.rank,
          .nope_dim = latent.nope_dim,
          .rope_dim = latent.rope_dim,
          .value_dim = latent.value_dim};
}

LatentGraph::LatentGraph(const ModelSpec& spec,
                         const RankPlan& plan,
                         const RopeWeights& rope,
                         DType dtype)
    : shape_(LatentShapeOf(spec, plan)),
      q_rank_(spec.latent.q_rank),
      scale_(spec.attention_scale != 0 ? spec.attention_scale
                                       : 1.0f / std::sqrt(static_cast<float>(spec.head_dim))),
      rope_({.inverse_frequencies = Rotates(spec) ? rope.inverse_frequencies.get() : nullptr,
             .magnitude = rope.magnitude,
             .pairing = spec.rope.pairing}),
      index_(spec.latent.index),
      dtype_(dtype) {}

ValueId LatentGraph::NewRows(const char* name, int64_t cols, StepGraph& graph) const {
  return graph.Add({.name = name, .dtype = dtype_, .rows = graph::RowCount::kStep, .cols = cols});
}

void LatentGraph::AppendWrite(ValueId x,
                              const LatentWeights& weights,
                              int32_t layer,
                              StepGraph& graph) const {
  const ValueId kv = NewRows("latent", shape_.width(), graph);
  graph.Append(graph::MatMulOp{
      .x = x, .weight = weights.kv_down.get(), .bias = weights.kv_down_bias.get(), .out = kv});
  const ValueId written = graph.Add(graph.value(kv));
  graph.Append(graph::WriteLatentOp{.kv = kv,
                                    .args = {.shape = shape_,
                                             .rope = rope_,
                                             .norm = weights.kv_norm.get(),
                                             .norm_epsilon = kNormEpsilon,
                                             .layer = layer},
                                    .out = written});
  if (index_.heads > 0) AppendIndexKeys(x, weights.index, layer, graph);
}

LatentRope LatentGraph::index_rope() const {
  LatentRope rope = rope_;
  rope.pairing = RopePairing::kHalves;
  return rope;
}

void LatentGraph::AppendIndexKeys(ValueId x,
                                  const IndexWeights& weights,
                                  int32_t layer,
                                  StepGraph& graph) const {
  const ValueId k = NewRows("index_k", index_.dim, graph);
  graph.Append(graph::MatMulOp{.x = x, .weight = weights.k.get(), .out = k});
  const ValueId normed = graph.Add(graph.value(k));
  graph.Append(graph::LayerNormOp{
      .x = k, .weight = weights.k_norm.get(), .epsilon = kNormEpsilon, .out = normed});
  const ValueId written = graph.Add(graph.value(k));
  graph.Append(
      graph::WriteIndexKeysOp{.k = normed,
                              .args = {.shape = index_, .rope = index_rope(), .layer = layer},
                              .out = written});
}

ValueId LatentGraph::AppendSelection(ValueId x,
                                     ValueId q_latent,
                                     const IndexWeights& weights,
                                     const Layer& layer,
                                     StepGraph& graph) const {
  const ValueId q = NewRows("index_q", int64_t{index_.heads} * index_.dim, graph);
  graph.Append(graph::MatMulOp{.x = q_latent, .weight = weights.q.get(), .out = q});
  const ValueId factors = NewRows("index_weights", index_.heads, graph);
  graph.Append(graph::MatMulOp{.x = x, .weight = weights.weights.get(), .out = factors});
  const ValueId selected = graph.Add({.name = "selected",
                                      .dtype = DType::kF32,
                                      .rows = graph::RowCount::kStep,
                                      .cols = index_.tokens});
  graph.Append(graph::SelectTokensOp{.q = q,
                                     .weights = factors,
                                     .args = {.shape = index_,
                                              .rope = index_rope(),
                                              .layer = layer.layer,
                                              .only_logit_rows = layer.last},
                                     .out = selected});
  return selected;
}

ValueId LatentGraph::AppendAttention(ValueId x,
                                     const LatentWeights& weights,
                                     const Layer& layer,
                                     StepGraph& graph) const {
  const ValueId input = x;
  if (weights.q_down != nullptr) {
    const ValueId down = NewRows("q_latent", q_rank_, graph);
    graph.Append(graph::MatMulOp{
        .x = x, .weight = weights.q_down.get(), .bias = weights.q_down_bias.get(), .out = down});
    const ValueId normed = graph.Add(graph.value(down));
    graph.Append(graph::NormOp{
        .x = down, .weight = weights.q_norm.get(), .epsilon = kNormEpsilon, .out = normed});
    x = normed;
  }
  const ValueId q = NewRows("q", int64_t{shape_.heads} * shape_.query_dim(), graph);
  graph.Append(graph::MatMulOp{.x = x, .weight = weights.q.get(), .out = q});
  const ValueId absorbed = NewRows("absorbed_q", int64_t{shape_.heads} * shape_.width(), graph);
  graph.Append(graph::AbsorbQueriesOp{
      .q = q, .args = {.shape = shape_, .rope = rope_, .keys = weights.keys}, .out = absorbed});
  const ValueId means = NewRows("means", int64_t{shape_.heads} * shape_.rank, graph);
  const LatentAttentionArgs args = {
      .shape = shape_, .layer = layer.layer, .scale = scale_, .only_logit_rows = layer.last};
  if (index_.heads == 0) {
    graph.Append(graph::AttendLatentsOp{.q = absorbed, .args = args, .out = means});
    return means;
  }
  const ValueId selected = AppendSelection(input, x, weights.index, layer, graph);
  graph.Append(
      graph::AttendSelectedOp{.q = absorbed, .selected = selected, .args = args, .out = means});
  return means;
}

void LatentGraph::AppendValues(ValueId means,
                               const LatentWeights& weights,
                               ValueId out,
                               StepGraph& graph) const {
  graph.Append(graph::ExpandValuesOp{
      .x = means, .args = {.shape = shape_, .values = weights.values}, .out = out});
}

}  // namespace baton
