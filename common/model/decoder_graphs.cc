#include "common/model/decoder_graphs.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/model/decoder_values.h"
#include "common/model/latent_graph.h"
#include "common/model/recurrent_graph.h"
#include "common/model/stage_graph.h"
#include "kernels/graph/fuse_add_norm.h"
#include "kernels/graph/place_exchanges.h"

namespace baton {
namespace {

using graph::RowCount;
using graph::Share;
using graph::ValueId;

// What a step computes of its logit rows.
struct Wanted {
  bool logits = false;
  bool states = false;

  bool any() const { return logits || states; }
};

// Builds the graph of one rank's stage, layer by layer.
class StageBuilder : private StageGraph {
 public:
  StageBuilder(const ModelSpec& spec,
               const RankPlan& plan,
               const DecoderWeights& weights,
               const DecoderValues& values,
               const Wanted& wanted)
      : StageGraph(spec, plan, values),
        weights_(weights),
        wanted_(wanted),
        latent_(spec, plan, weights.rope, values.qkv.dtype),
        recurrent_(spec, plan, values.recurrent, Gathered(plan_.ends.recurrent)) {}

  graph::StepGraph Build() {
    Enter();
    const auto layers = static_cast<int32_t>(plan_.layers.size());
    const int32_t last_mixer = plan_.last_stage() ? LastMixer() : layers;
    for (int32_t layer = 0; layer < layers; ++layer) {
      const Mixed written = WriteCache(layer);
      const bool last = layer == last_mixer;
      if (last && !wanted_.any()) break;
      AddMixed(layer, Mix(layer, written, last));
      FinishLayer(layer);
    }
    Leave();
    if (plan_.tensor_parallel()) graph::PlaceExchanges(graph_);
    graph::FuseAddNorm(graph_);
    return std::move(graph_);
  }

 private:
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
      ScaleEmbedding();
    }
    normed_ = InputNorm(weights_.layers[0].attention_norm.get());
  }

  void ScaleEmbedding() {
    const float factor = spec_.embedding_scale / spec_.residual_scale;
    if (factor == 1) return;
    const ValueId scaled = New(values_.residual);
    graph_.Append(graph::ScaleOp{.x = residual_, .factor = factor, .out = scaled});
    residual_ = scaled;
  }

  // What a layer computes of its input, beside a feed-forward network: first the input of
  // attention, then its outputs; and the outputs of the recurrent part.
  struct Mixed {
    std::optional<ValueId> attention;
    std::optional<ValueId> recurrent;
  };

  // Writes what the layer keeps of every row.
  Mixed WriteCache(int32_t layer) {
    const LayerSpec& spec = SpecOf(layer);
    Mixed mixed;
    if (spec.attention) {
      mixed.attention = spec_.latent_attention() ? WriteLatents(layer) : WriteKv(layer);
    }
    if (spec.state) mixed.recurrent = RunRecurrent(layer);
    const int32_t written = CacheNumberOf(layer);
    if (spec.mixes()) graph_.Append(graph::KvWrittenOp{written});
    if (spec.attention && spec.state) graph_.Append(graph::KvWrittenOp{written + 1});
    return mixed;
  }

  // Updates the states with all rows. Returns the outputs of the heads.
  ValueId RunRecurrent(int32_t layer) {
    const RecurrentWeights& weights = weights_.layers[static_cast<size_t>(layer)].recurrent;
    const Vector* const norm = weights.input_norm.get();
    const ValueId input = norm == nullptr ? normed_ : InputNorm(norm);
    return recurrent_.Append(input, weights, StateLayerOf(layer), graph_);
  }

  // Computes q, k and v of every row and writes k and v into the KV cache. Returns q, k and v.
  ValueId WriteKv(int32_t layer) {
    const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
    ValueId qkv = New(values_.qkv);
    graph_.Append(graph::MatMulOp{
        .x = normed_, .weight = weights.qkv.get(), .bias = weights.qkv_bias.get(), .out = qkv});
    if (weights.qk_norm != nullptr) qkv = NormQk(qkv, *weights.qk_norm);
    const LayerSpec& spec = SpecOf(layer);
    const RopeWeights& rope = weights_.RopeOf(spec);
    const Vector* const frequencies = spec.rotary ? rope.inverse_frequencies.get() : nullptr;
    const ValueId rotated = New(values_.qkv);
    graph_.Append(graph::RopeAndWriteKvOp{
        .qkv = qkv,
        .heads = plan_.heads,
        .args = {.inverse_frequencies = frequencies,
                 .magnitude = rope.magnitude,
                 .pairing = spec_.rope.pairing,
                 .q_norm = weights.q_norm.get(),
                 .k_norm = weights.k_norm.get(),
                 .norm_epsilon = spec_.norm_epsilon,
                 .kv_scales = weights.kv_scales.get(),
                 .norm_after_rope = spec_.norms_after_rope(),
                 .query_scaling = spec.rotary ? QueryScaling() : spec_.query_scaling},
        .layer = CacheLayerOf(layer),
        .out = rotated});
    return rotated;
  }

  // Writes the latents of every row into the KV cache. Returns what queries are computed of.
  ValueId WriteLatents(int32_t layer) {
    const LatentWeights& weights = weights_.layers[static_cast<size_t>(layer)].latent;
    latent_.AppendWrite(normed_, weights, CacheLayerOf(layer), graph_);
    return normed_;
  }

  // The norms of q and k whose weights are [q | k] of all heads.
  ValueId NormQk(ValueId qkv, const Vector& weight) {
    const ValueId normed = New(values_.qkv);
    if (spec_.qk_norm == QkNorm::kHeadLayer) {
      graph_.Append(graph::HeadLayerNormOp{.qkv = qkv,
                                           .heads = plan_.heads,
                                           .weight = &weight,
                                           .epsilon = spec_.norm_epsilon,
                                           .out = normed});
      return normed;
    }
    const HeadPlace place = PlaceOfHeads();
    const ValueId squares =
        New(values_.squares, plan_.tensor_parallel() ? Share(graph::Summand{}) : graph::Whole{});
    graph_.Append(
        graph::HeadSquaresOp{.qkv = qkv, .heads = plan_.heads, .place = place, .out = squares});
    graph_.Append(graph::ProjectionNormOp{.qkv = qkv,
                                          .squares = squares,
                                          .heads = plan_.heads,
                                          .place = place,
                                          .weight = &weight,
                                          .epsilon = spec_.norm_epsilon,
                                          .out = normed});
    return normed;
  }

  // Of the ranks with a copy of a KV head, the one with the first of its query heads owns it.
  HeadPlace PlaceOfHeads() const {
    const IndexRange q = plan_.slice.heads.value_or(IndexRange{0, spec_.heads});
    const IndexRange kv = plan_.slice.kv_heads.value_or(IndexRange{0, spec_.kv_heads});
    const int64_t group = spec_.heads / spec_.kv_heads;
    return {.model = spec_.head_shape(),
            .first_q_head = static_cast<int32_t>(q.begin),
            .first_kv_head = static_cast<int32_t>(kv.begin),
            .owns_kv_heads = q.begin % group == 0};
  }

  // Attention over latents: the heads' means of latents, of logit rows in the last layer, become
  // their outputs.
  ValueId AttendLatents(int32_t layer, ValueId x, bool last) {
    const LatentWeights& weights = weights_.layers[static_cast<size_t>(layer)].latent;
    ValueId means =
        latent_.AppendAttention(x, weights, {.layer = CacheLayerOf(layer), .last = last}, graph_);
    if (last) means = KeepLogitRows(means);
    const ValueId out = New(values_.attention, Gathered(plan_.ends.attention));
    latent_.AppendValues(means, weights, out, graph_);
    return out;
  }

  // Computes attention of all rows. After the last layer that keeps something of a sequence, the
  // step has only logit rows.
  Mixed Mix(int32_t layer, Mixed mixed, bool last) {
    const std::optional<ValueId> recurrent = mixed.recurrent;
    if (mixed.attention) mixed.attention = Attend(layer, *mixed.attention, last);
    if (recurrent && last) {
      const Value kind = graph_.value(*recurrent);
      mixed.recurrent =
          mixed.attention ? GatherRows(*recurrent, kind, kind.share) : KeepLogitRows(*recurrent);
    }
    return mixed;
  }

  ValueId Attend(int32_t layer, ValueId qkv, bool last) {
    if (spec_.latent_attention()) return AttendLatents(layer, qkv, last);
    const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
    const ValueId attention = New(values_.attention, Gathered(plan_.ends.attention));
    graph_.Append(graph::AttentionOp{
        .qkv = qkv,
        .args = {.heads = plan_.heads,
                 .layer = CacheLayerOf(layer),
                 .scale = spec_.attention_scale != 0
                              ? spec_.attention_scale
                              : 1.0f / std::sqrt(static_cast<float>(spec_.head_dim)),
                 .window = SpecOf(layer).window,
                 .chunk = SpecOf(layer).chunk,
                 .kv_scales = weights.kv_scales.get(),
                 .sinks = weights.sinks.get(),
                 .cap = spec_.attention_cap,
                 .only_logit_rows = last},
        .out = attention});
    const ValueId rows = last ? KeepLogitRows(attention) : attention;
    return weights.attention_gate != nullptr ? GateAttention(rows, *weights.attention_gate) : rows;
  }

  // From here on, the step has only logit rows. Returns those of x.
  ValueId KeepLogitRows(ValueId x) {
    rows_ = RowCount::kLogits;
    const Value kind = graph_.value(x);
    const ValueId rows = GatherRows(x, kind, kind.share);
    residual_ = GatherRows(residual_, values_.residual);
    if (spec_.residual == ResidualForm::kParallel || spec_.attention_gate) {
      normed_ = GatherRows(normed_, values_.normed);
    }
    return rows;
  }

  // Multiplies attention by a sigmoid of the projected input of the layer.
  ValueId GateAttention(ValueId attention, const Matrix& weight) {
    const ValueId gate = New(values_.attention_gate);
    graph_.Append(graph::MatMulOp{.x = normed_, .weight = &weight, .out = gate});
    const ValueId gated = graph_.Add(graph_.value(attention));
    graph_.Append(graph::SigmoidGateOp{.x = attention, .gate = gate, .out = gated});
    return gated;
  }

  // Projects and adds what a layer has mixed. In parallel, the feed-forward network reads what
  // attention reads: the residual before it.
  void AddMixed(int32_t layer, const Mixed& mixed) {
    const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
    if (mixed.attention) {
      const ValueId attended =
          Project(*mixed.attention, *weights.attention_output, weights.attention_output_bias.get());
      if (spec_.residual == ResidualForm::kParallelTwoNorms) {
        normed_ = InputNorm(weights.feed_forward_norm.get());
      }
      AddToResidual(Scaled(attended, spec_.attention_output_scale),
                    weights.attention_post_norm.get());
    }
    if (mixed.recurrent) {
      const ValueId projected = Project(*mixed.recurrent, *weights.recurrent.output, nullptr);
      AddToResidual(Scaled(projected, spec_.recurrent.output_scale),
                    weights.attention_post_norm.get());
    }
  }

  // The feed-forward network, and the norm after the layer.
  void FinishLayer(int32_t layer) {
    if (SpecOf(layer).feed_forward) {
      const Vector* const norm =
          weights_.layers[static_cast<size_t>(layer)].feed_forward_norm.get();
      AddFeedForward(layer, spec_.parallel() ? normed_ : InputNorm(norm));
    }
    const auto next = static_cast<size_t>(layer) + 1;
    normed_ =
        InputNorm(next == weights_.layers.size() ? weights_.next_norm.get()
                                                 : weights_.layers[next].attention_norm.get());
  }

  void AddFeedForward(int32_t layer, ValueId input) {
    const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
    const Vector* const post_norm = weights.feed_forward_post_norm.get();
    if (!SpecOf(layer).moe) {
      const ValueId inner = New(values_.feed_forward, Gathered(plan_.ends.feed_forward));
      const ValueId computed =
          weights.gate != nullptr
              ? GatedInner(input, *weights.gate, *weights.gate_up, inner)
              : Inner(input, *weights.gate_up, weights.gate_up_bias.get(), inner);
      const ValueId projected = Project(computed, *weights.down, weights.down_bias.get());
      AddToResidual(Scaled(projected, spec_.feed_forward_scale), post_norm);
      return;
    }
    AddToResidual(Experts(weights, input), post_norm);
    if (weights.shared_down != nullptr) AddToResidual(SharedExpert(weights, input), post_norm);
  }

  // The inside of a feed-forward network: writes `out`, or what replaces it.
  ValueId Inner(ValueId x, const Matrix& gate_up, const Vector* bias, ValueId out) {
    if (spec_.silu()) {
      graph_.Append(graph::GatedMatMulOp{.x = x, .gate_up = &gate_up, .bias = bias, .out = out});
      return out;
    }
    graph_.Append(graph::MatMulOp{.x = x, .weight = &gate_up, .bias = bias, .out = out});
    const ValueId activated = graph_.Add(graph_.value(out));
    graph_.Append(graph::ActivateOp{.x = out, .activation = ActivationOf(), .out = activated});
    return activated;
  }

  Activation ActivationOf() const {
    switch (spec_.feed_forward) {
      case FeedForward::kSiluGated:
        return Activation::kSilu;
      case FeedForward::kGelu:
        return Activation::kGelu;
      case FeedForward::kGeluTanh:
      case FeedForward::kGeluTanhGated:
        break;
      case FeedForward::kSquaredRelu:
        return Activation::kSquaredRelu;
    }
    return Activation::kGeluTanh;
  }

  // The same with a gate of GELU, or a scaled one: writes `out`, or what replaces it.
  ValueId GatedInner(ValueId x, const Matrix& gate, const Matrix& up, ValueId out) {
    graph_.Append(graph::MatMulOp{.x = x, .weight = &gate, .out = out});
    const ValueId activated = graph_.Add(graph_.value(out));
    graph_.Append(graph::ActivateOp{
        .x = out, .activation = ActivationOf(), .scale = spec_.gate_scale, .out = activated});
    const ValueId factors = graph_.Add(graph_.value(out));
    graph_.Append(graph::MatMulOp{.x = x, .weight = &up, .out = factors});
    const ValueId gated = graph_.Add(graph_.value(out));
    graph_.Append(graph::MultiplyOp{.x = activated, .factors = factors, .out = gated});
    return gated;
  }

  ValueId Experts(const LayerWeights& weights, ValueId input) {
    const MoeSpec& moe = spec_.moe;
    const ValueId out = New(values_.delta);
    const RouterArgs routing = {.score = moe.score,
                                .scale = moe.scale,
                                .weighted_inputs = moe.weighted_inputs,
                                .least_sum = moe.least_sum,
                                .selection_bias = weights.selection_bias.get(),
                                .groups = moe.groups,
                                .groups_per_token = moe.groups_per_token,
                                .group_score = moe.group_score};
    graph_.Append(graph::ExpertsOp{.x = input,
                                   .args = {.router = weights.router.get(),
                                            .gate_up = weights.expert_gate_up,
                                            .down = weights.expert_down,
                                            .experts_per_token = moe.experts_per_token,
                                            .normalize = moe.normalize,
                                            .rank_ends = plan_.expert_ends,
                                            .routing = routing,
                                            .gate = moe.gate,
                                            .router_bias = weights.router_bias.get(),
                                            .gate_up_bias = weights.expert_gate_up_bias,
                                            .down_bias = weights.expert_down_bias},
                                   .out = out});
    return out;
  }

  // The network of all tokens beside the experts.
  ValueId SharedExpert(const LayerWeights& weights, ValueId input) {
    const ValueId inner = New(values_.shared, Gathered(plan_.ends.shared));
    const ValueId computed =
        Inner(input, *weights.shared_gate_up, weights.shared_gate_up_bias.get(), inner);
    const ValueId out = Project(computed, *weights.shared_down, weights.shared_down_bias.get());
    if (weights.shared_gate == nullptr) return out;
    const ValueId gate = New(values_.gate);
    graph_.Append(graph::MatMulOp{.x = input, .weight = weights.shared_gate.get(), .out = gate});
    const ValueId gated = graph_.Add(graph_.value(out));
    graph_.Append(graph::SigmoidGateOp{.x = out, .gate = gate, .out = gated});
    return gated;
  }

  // Hands the residual to the next stage, or computes the results and hands them to the leader.
  void Leave() {
    const RankPlace& place = plan_.place;
    if (!plan_.last_stage()) {
      graph_.Append(graph::SendOp{.x = residual_, .stage = place.stage + 1});
      return;
    }
    const bool answers = place.pipeline_parallel > 1 && place.tensor_rank == 0;
    if (!wanted_.any() && answers) {
      const ValueId sent = graph_.Add(values_.signal);
      graph_.Append(graph::SignalOp{.stage = 0, .out = sent});
    }
    if (wanted_.logits) graph_.AddResult(Logits());
    if (wanted_.states) graph_.AddResult(normed_);
    if (!answers) return;
    for (const ValueId result : graph_.results()) {
      graph_.Append(graph::SendOp{.x = result, .stage = 0});
    }
  }

  ValueId Logits() {
    ValueId logits =
        New(values_.logits,
            plan_.tensor_parallel() ? Share(graph::Columns{plan_.ends.vocab}) : graph::Whole{});
    graph_.Append(graph::MatMulOp{.x = normed_,
                                  .weight = &weights_.output_head(),
                                  .bias = weights_.head_bias.get(),
                                  .out = logits});
    if (spec_.logit_cap != 0) {
      const ValueId capped = graph_.Add(graph_.value(logits));
      graph_.Append(graph::SoftCapOp{.x = logits, .cap = spec_.logit_cap, .out = capped});
      logits = capped;
    }
    return logits;
  }

  const DecoderWeights& weights_;
  const Wanted wanted_;
  const LatentGraph latent_;
  const RecurrentGraph recurrent_;
  ValueId normed_ = 0;
};

graph::StepGraph AnswerGraph(const RankPlan& plan,
                             const DecoderValues& values,
                             const Wanted& wanted) {
  graph::StepGraph answer;
  if (!plan.place.leader() || plan.place.pipeline_parallel == 1) return answer;
  const auto receive = [&](const graph::Value& value) {
    const ValueId received = answer.Add(value);
    answer.Append(graph::ReceiveOp{.stage = plan.place.pipeline_parallel - 1, .out = received});
    return received;
  };
  if (wanted.logits) answer.AddResult(receive(values.logits));
  if (wanted.states) answer.AddResult(receive(values.states));
  if (!wanted.any()) receive(values.signal);
  return answer;
}

}  // namespace

DecoderGraphs BuildDecoderGraphs(const ModelSpec& spec,
                                 const RankPlan& plan,
                                 const DecoderWeights& weights,
                                 DType dtype) {
  const DecoderValues values(spec, plan, dtype);
  const auto build = [&](const Wanted& wanted) {
    StepGraphs graphs = {StageBuilder(spec, plan, weights, values, wanted).Build(),
                         AnswerGraph(plan, values, wanted)};
    for (const graph::StepGraph* graph : {&graphs.stage, &graphs.answer}) {
      const Status status = graph::Check(*graph);
      BATON_CHECK(status.ok(), "the graph of a step: {}", Message(status));
    }
    return graphs;
  };
  DecoderGraphs graphs;
  graphs[0] = build({});
  for (const RowResults results : {RowResults::kLogits, RowResults::kStates, RowResults::kBoth}) {
    graphs[StepKindOf(1, results)] =
        build({.logits = results != RowResults::kStates, .states = results != RowResults::kLogits});
  }
  return graphs;
}

}  // namespace baton
