#pragma once

#include <cstdint>
#include <vector>

#include "common/model/decoder_values.h"
#include "common/model/model_spec.h"
#include "common/model/rank_plan.h"
#include "kernels/graph/step_graph.h"
#include "kernels/tensor.h"

namespace baton {

// The graph of one rank's stage while it is built: the residual, where its layers are in the model
// and in the cache, and the ops that blocks of all kinds are made of. All arguments of the
// constructor must outlive it.
class StageGraph {
 public:
  using Share = graph::Share;
  using Value = graph::Value;
  using ValueId = graph::ValueId;

  StageGraph(const ModelSpec& spec, const RankPlan& plan, const DecoderValues& values)
      : spec_(spec), plan_(plan), values_(values) {}

 protected:
  bool gathers() const { return plan_.tensor_parallel() && plan_.mode == ExchangeMode::kGather; }
  bool reduces() const { return plan_.tensor_parallel() && plan_.mode == ExchangeMode::kReduce; }

  // The layer's number in the model.
  int32_t NumberOf(int32_t layer) const { return static_cast<int32_t>(plan_.layers.begin) + layer; }
  const LayerSpec& SpecOf(int32_t layer) const {
    return spec_.layers[static_cast<size_t>(NumberOf(layer))];
  }
  // The last layer that keeps something of a sequence. What is behind it computes logits alone.
  int32_t LastMixer() const;
  // The number of the layer's first cache layer, among those of the model.
  int32_t CacheNumberOf(int32_t layer) const;
  // The same among those of the rank.
  int32_t CacheLayerOf(int32_t layer) const {
    return CacheNumberOf(layer) - plan_.kv_shard.first_layer;
  }
  // The cache layer of the layer's state, which comes after that of its KV.
  int32_t StateLayerOf(int32_t layer) const {
    return CacheLayerOf(layer) + (SpecOf(layer).attention ? 1 : 0);
  }

  ValueId New(Value value, Share share = graph::Whole{});
  // What a rank computes of an activation that ranks gather.
  Share Gathered(const std::vector<int64_t>& ends) const;
  ValueId GatherRows(ValueId x, const Value& kind, Share share = graph::Whole{});
  ValueId Norm(ValueId x, const Vector& weight, float epsilon);
  // The norm of the residual, or the residual itself where the model has no norm. The graph keeps
  // the residual divided by the residual scale, so that what a layer adds needs no factor. A norm
  // of it is the same, when its epsilon is divided, too.
  ValueId InputNorm(const Vector* weight);
  // W x for attention output and down.
  ValueId Project(ValueId x, const Matrix& weight, const Vector* bias);
  // What a layer adds, times a factor.
  ValueId Scaled(ValueId delta, float factor);
  // Adds what attention or the feed-forward computed, through a norm if the model has `post_norm`.
  void AddToResidual(ValueId delta, const Vector* post_norm);

  const ModelSpec& spec_;
  const RankPlan& plan_;
  const DecoderValues& values_;
  graph::StepGraph graph_;
  graph::RowCount rows_ = graph::RowCount::kStep;  // of new values
  ValueId residual_ = 0;
};

}  // namespace baton
