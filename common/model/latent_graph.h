#pragma once

#include <cstdint>

#include "common/model/decoder_weights.h"
#include "common/model/model_spec.h"
#include "common/model/rank_plan.h"
#include "kernels/graph/step_graph.h"
#include "kernels/latent_ops.h"

namespace baton {

// Without a rank if the model has no latent attention.
LatentShape LatentShapeOf(const ModelSpec& spec, const RankPlan& plan);

// Appends the ops of multi-head latent attention on one rank to graphs of steps. Refers to the
// rotary embedding and to the weights of layers, which outlive the graphs.
class LatentGraph final {
 public:
  LatentGraph(const ModelSpec& spec, const RankPlan& plan, const RopeWeights& rope, DType dtype);

  struct Layer {
    int32_t layer = 0;  // of this rank
    bool last = false;  // of the model
  };

  // Computes the latents of x, and the index keys, if any, and writes them into the KV cache.
  void AppendWrite(graph::ValueId x,
                   const LatentWeights& weights,
                   int32_t layer,
                   graph::StepGraph& graph) const;
  // Attention of the queries that are computed of x. Returns the heads' weighted means of latents.
  graph::ValueId AppendAttention(graph::ValueId x,
                                 const LatentWeights& weights,
                                 const Layer& layer,
                                 graph::StepGraph& graph) const;
  // Writes the heads' outputs, of their means of latents, into `out`.
  void AppendValues(graph::ValueId means,
                    const LatentWeights& weights,
                    graph::ValueId out,
                    graph::StepGraph& graph) const;

 private:
  void AppendIndexKeys(graph::ValueId x,
                       const IndexWeights& weights,
                       int32_t layer,
                       graph::StepGraph& graph) const;
  // The tokens that rows attend to, selected by queries that are computed of a latent of queries.
  graph::ValueId AppendSelection(graph::ValueId x,
                                 graph::ValueId q_latent,
                                 const IndexWeights& weights,
                                 const Layer& layer,
                                 graph::StepGraph& graph) const;
  // The rotary embedding of the index, which has another pairing.
  LatentRope index_rope() const;
  graph::ValueId NewRows(const char* name, int64_t cols, graph::StepGraph& graph) const;

  const LatentShape shape_;
  const int32_t q_rank_;
  const float scale_;
  const LatentRope rope_;
  const IndexShape index_;
  const DType dtype_;
};

}  // namespace baton
