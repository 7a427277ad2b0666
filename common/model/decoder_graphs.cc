#include "common/model/decoder_graphs.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kernels/graph/fuse_add_norm.h"
#include "kernels/graph/place_exchanges.h"

namespace baton {
namespace {

using graph::RowCount;
using graph::Share;
using graph::Value;
using graph::ValueId;

// The values of a decoder by their kind.
class DecoderValues {
 public:
  DecoderValues(const ModelSpec& spec, const RankPlan& plan, DType dtype) {
    const bool gathers = plan.mode == ExchangeMode::kGather;
    const int64_t head_dim = spec.head_dim;
    const int64_t q_cols = (gathers ? spec.heads : plan.heads.q_heads) * head_dim;
    const int64_t qkv_cols = (plan.heads.q_heads + 2 * plan.heads.kv_heads) * head_dim;
    const int64_t inner =
        !gathers && plan.slice.intermediate ? plan.slice.intermediate->size() : spec.intermediate;
    residual = {"residual", DType::kF32, RowCount::kStep, spec.hidden};
    normed = {"normed", dtype, RowCount::kStep, spec.hidden};
    qkv = {"qkv", dtype, RowCount::kStep, qkv_cols};
    attention = {"attention", dtype, RowCount::kStep, q_cols};
    delta = {"delta", dtype, RowCount::kStep, spec.hidden};
    feed_forward = {"feed_forward", dtype, RowCount::kStep, inner};
    logits = {"logits", DType::kF32, RowCount::kLogits, spec.vocab};
    signal = {"signal", DType::kF32, RowCount::kOne, 1};
  }

  Value residual, normed, qkv, attention, delta, feed_forward, logits, signal;
};

// Builds the graph of one rank's stage, layer by layer.
class StageBuilder {
 public:
  StageBuilder(const ModelSpec& spec,
               const RankPlan& plan,
               const DecoderWeights& weights,
               const DecoderValues& values,
               bool logits)
      : spec_(spec), plan_(plan), weights_(weights), values_(values), logits_(logits) {}

  graph::StepGraph Build() {
    Enter();
    const auto layers = static_cast<int32_t>(plan_.layers.size());
    for (int32_t layer = 0; layer < layers; ++layer) {
      const ValueId qkv = WriteKv(layer);
      const bool last = plan_.last_stage() && layer + 1 == layers;
      if (last && !logits_) break;
      FinishLayer(layer, Attend(layer, qkv, last));
    }
    Leave();
    if (plan_.tensor_parallel()) graph::PlaceExchanges(graph_);
    graph::FuseAddNorm(graph_);
    return std::move(graph_);
  }

 private:
  bool gathers() const { return plan_.tensor_parallel() && plan_.mode == ExchangeMode::kGather; }
  bool reduces() const { return plan_.tensor_parallel() && plan_.mode == ExchangeMode::kReduce; }

  // The layer's number in the model.
  int32_t NumberOf(int32_t layer) const { return static_cast<int32_t>(plan_.layers.begin) + layer; }

  ValueId New(Value value, Share share = graph::Whole{}) {
    value.rows = rows_;
    value.share = std::move(share);
    return graph_.Add(std::move(value));
  }

  // What a rank computes of an activation that ranks gather.
  Share Gathered(const std::vector<int64_t>& ends) const {
    if (!gathers()) return graph::Whole{};
    return graph::Columns{ends};
  }

  ValueId Norm(ValueId x, const Vector& weight) {
    const ValueId out = New(values_.normed);
    graph_.Append(
        graph::NormOp{.x = x, .weight = &weight, .epsilon = spec_.norm_epsilon, .out = out});
    return out;
  }

  // Adds what attention or the feed-forward computed, through a norm if the model has `post_norm`.
  void AddToResidual(ValueId delta, const Vector* post_norm) {
    if (post_norm != nullptr) delta = Norm(delta, *post_norm);
    const ValueId sum = New(values_.residual);
    graph_.Append(graph::AddOp{.residual = residual_, .delta = delta, .out = sum});
    residual_ = sum;
  }

  // The residual and the first norm.
  void Enter() {
    if (!plan_.first_stage()) {
      residual_ = New(values_.residual);
      graph_.Append(graph::ReceiveOp{.stage = plan_.place.stage - 1, .out = residual_});
    } else {
      const bool parts = plan_.tensor_parallel();
      residual_ = New(values_.residual, parts ? Share(graph::Summand{}) : graph::Whole{});
      graph_.Append(
          graph::EmbedOp{.table = weights_.embedding.get(),
                         .first_token = parts ? static_cast<int32_t>(plan_.slice.vocab->begin) : 0,
                         .out = residual_});
    }
    normed_ = Norm(residual_, *weights_.layers[0].attention_norm);
  }

  // Computes q, k and v of every row and writes k and v into the KV cache. Returns q, k and v.
  ValueId WriteKv(int32_t layer) {
    const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
    const ValueId qkv = New(values_.qkv);
    graph_.Append(graph::MatMulOp{
        .x = normed_, .weight = weights.qkv.get(), .bias = weights.qkv_bias.get(), .out = qkv});
    const ValueId rotated = New(values_.qkv);
    graph_.Append(
        graph::RopeAndWriteKvOp{.qkv = qkv,
                                .heads = plan_.heads,
                                .args = {.inverse_frequencies = weights_.inverse_frequencies.get(),
                                         .magnitude = weights_.rope_magnitude,
                                         .pairing = spec_.rope.pairing,
                                         .q_norm = weights.q_norm.get(),
                                         .k_norm = weights.k_norm.get(),
                                         .norm_epsilon = spec_.norm_epsilon,
                                         .kv_scales = weights.kv_scales.get()},
                                .layer = layer,
                                .out = rotated});
    graph_.Append(graph::KvWrittenOp{NumberOf(layer)});
    return rotated;
  }

  // Attention of all rows. After the attention of the last layer, the step has only logit rows.
  ValueId Attend(int32_t layer, ValueId qkv, bool last) {
    const ValueId attention = New(values_.attention, Gathered(plan_.ends.attention));
    graph_.Append(graph::AttentionOp{
        .qkv = qkv,
        .args = {.heads = plan_.heads,
                 .layer = layer,
                 .scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim)),
                 .window = spec_.layers[static_cast<size_t>(NumberOf(layer))].window,
                 .kv_scales = weights_.layers[static_cast<size_t>(layer)].kv_scales.get(),
                 .only_logit_rows = last},
        .out = attention});
    if (!last) return attention;
    rows_ = RowCount::kLogits;
    const ValueId rows = New(values_.attention, Gathered(plan_.ends.attention));
    graph_.Append(graph::GatherRowsOp{.x = attention, .out = rows});
    const ValueId residual = New(values_.residual);
    graph_.Append(graph::GatherRowsOp{.x = residual_, .out = residual});
    residual_ = residual;
    return rows;
  }

  // W x for attention output and down.
  ValueId Project(ValueId x, const Matrix& weight, const Vector* bias) {
    const ValueId out =
        New(values_.delta, reduces() ? Share(graph::Summand{}) : Gathered(plan_.ends.hidden));
    // A sum has the bias once.
    const bool adds_bias = !reduces() || plan_.place.tensor_rank == 0;
    graph_.Append(
        graph::MatMulOp{.x = x, .weight = &weight, .bias = adds_bias ? bias : nullptr, .out = out});
    return out;
  }

  // The rest of a layer after attention, and the norm after the layer.
  void FinishLayer(int32_t layer, ValueId attention) {
    const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
    AddToResidual(
        Project(attention, *weights.attention_output, weights.attention_output_bias.get()),
        weights.attention_post_norm.get());
    const ValueId normed = Norm(residual_, *weights.feed_forward_norm);
    AddToResidual(FeedForward(layer, normed), weights.feed_forward_post_norm.get());
    const auto next = static_cast<size_t>(layer) + 1;
    const Vector& norm = next == weights_.layers.size() ? *weights_.next_norm
                                                        : *weights_.layers[next].attention_norm;
    normed_ = Norm(residual_, norm);
  }

  ValueId FeedForward(int32_t layer, ValueId normed) {
    const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
    if (spec_.layers[static_cast<size_t>(NumberOf(layer))].moe) {
      const ValueId out = New(values_.delta);
      graph_.Append(graph::ExpertsOp{.x = normed,
                                     .args = {.router = weights.router.get(),
                                              .gate_up = weights.expert_gate_up,
                                              .down = weights.expert_down,
                                              .experts_per_token = spec_.moe.experts_per_token,
                                              .normalize = spec_.moe.normalize,
                                              .rank_ends = plan_.expert_ends},
                                     .out = out});
      return out;
    }
    const ValueId inner = New(values_.feed_forward, Gathered(plan_.ends.feed_forward));
    graph_.Append(graph::GatedMatMulOp{.x = normed,
                                       .gate_up = weights.gate_up.get(),
                                       .bias = weights.gate_up_bias.get(),
                                       .out = inner});
    return Project(inner, *weights.down, weights.down_bias.get());
  }

  // Hands the residual to the next stage, or computes the logits and hands them to the leader.
  void Leave() {
    const RankPlace& place = plan_.place;
    if (!plan_.last_stage()) {
      graph_.Append(graph::SendOp{.x = residual_, .stage = place.stage + 1});
      return;
    }
    const bool answers = place.pipeline_parallel > 1 && place.tensor_rank == 0;
    if (!logits_) {
      if (answers) {
        const ValueId sent = graph_.Add(values_.signal);
        graph_.Append(graph::SignalOp{.stage = 0, .out = sent});
      }
      return;
    }
    const ValueId logits =
        New(values_.logits,
            plan_.tensor_parallel() ? Share(graph::Columns{plan_.ends.vocab}) : graph::Whole{});
    graph_.Append(graph::MatMulOp{.x = normed_, .weight = &weights_.output_head(), .out = logits});
    graph_.set_result(logits);
    if (answers) graph_.Append(graph::SendOp{.x = logits, .stage = 0});
  }

  const ModelSpec& spec_;
  const RankPlan& plan_;
  const DecoderWeights& weights_;
  const DecoderValues& values_;
  const bool logits_;

  graph::StepGraph graph_;
  RowCount rows_ = RowCount::kStep;  // of new values
  ValueId residual_ = 0;
  ValueId normed_ = 0;
};

graph::StepGraph AnswerGraph(const RankPlan& plan, const DecoderValues& values, bool logits) {
  graph::StepGraph answer;
  if (!plan.place.leader() || plan.place.pipeline_parallel == 1) return answer;
  const ValueId received = answer.Add(logits ? values.logits : values.signal);
  answer.Append(graph::ReceiveOp{.stage = plan.place.pipeline_parallel - 1, .out = received});
  if (logits) answer.set_result(received);
  return answer;
}

}  // namespace

DecoderGraphs BuildDecoderGraphs(const ModelSpec& spec,
                                 const RankPlan& plan,
                                 const DecoderWeights& weights,
                                 DType dtype) {
  const DecoderValues values(spec, plan, dtype);
  const auto build = [&](bool logits) {
    StepGraphs graphs = {StageBuilder(spec, plan, weights, values, logits).Build(),
                         AnswerGraph(plan, values, logits)};
    for (const graph::StepGraph* graph : {&graphs.stage, &graphs.answer}) {
      const Status status = graph::Check(*graph);
      BATON_CHECK(status.ok(), "the graph of a step: {}", Message(status));
    }
    return graphs;
  };
  return {build(true), build(false)};
}

}  // namespace baton
