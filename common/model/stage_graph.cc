#include "common/model/stage_graph.h"

#include <utility>

#include "common/model/cache_layers.h"

namespace baton {

int32_t StageGraph::LastMixer() const {
  auto layer = static_cast<int32_t>(plan_.layers.size()) - 1;
  while (!SpecOf(layer).mixes()) --layer;
  return layer;
}

int32_t StageGraph::CacheNumberOf(int32_t layer) const {
  return CacheLayersBefore(spec_, NumberOf(layer));
}

graph::ValueId StageGraph::New(Value value, Share share) {
  value.rows = rows_;
  value.share = std::move(share);
  return graph_.Add(std::move(value));
}

graph::Share StageGraph::Gathered(const std::vector<int64_t>& ends) const {
  if (!gathers()) return graph::Whole{};
  return graph::Columns{ends};
}

graph::ValueId StageGraph::GatherRows(ValueId x, const Value& kind, Share share) {
  const ValueId out = New(kind, std::move(share));
  graph_.Append(graph::GatherRowsOp{.x = x, .out = out});
  return out;
}

graph::ValueId StageGraph::Norm(ValueId x, const Vector& weight, float epsilon) {
  const ValueId out = New(values_.normed);
  if (spec_.norm == NormKind::kRms) {
    graph_.Append(graph::NormOp{.x = x, .weight = &weight, .epsilon = epsilon, .out = out});
  } else {
    graph_.Append(graph::LayerNormOp{.x = x, .weight = &weight, .epsilon = epsilon, .out = out});
  }
  return out;
}

graph::ValueId StageGraph::InputNorm(const Vector* weight) {
  const float scale = spec_.residual_scale;
  if (weight == nullptr) return residual_;
  return Norm(residual_, *weight, spec_.norm_epsilon / (scale * scale));
}

graph::ValueId StageGraph::Project(ValueId x, const Matrix& weight, const Vector* bias) {
  const ValueId out =
      New(values_.delta, reduces() ? Share(graph::Summand{}) : Gathered(plan_.ends.hidden));
  // A sum has the bias once.
  const bool adds_bias = !reduces() || plan_.place.tensor_rank == 0;
  graph_.Append(
      graph::MatMulOp{.x = x, .weight = &weight, .bias = adds_bias ? bias : nullptr, .out = out});
  return out;
}

graph::ValueId StageGraph::Scaled(ValueId delta, float factor) {
  if (factor == 1) return delta;
  const ValueId scaled = New(values_.delta);
  graph_.Append(graph::ScaleOp{.x = delta, .factor = factor, .out = scaled});
  return scaled;
}

void StageGraph::AddToResidual(ValueId delta, const Vector* post_norm) {
  if (post_norm != nullptr) delta = Norm(delta, *post_norm, spec_.norm_epsilon);
  const ValueId sum = New(values_.residual);
  graph_.Append(graph::AddOp{.residual = residual_, .delta = delta, .out = sum});
  residual_ = sum;
}

}  // namespace baton
