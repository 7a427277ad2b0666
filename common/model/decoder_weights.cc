#include "common/model/decoder_weights.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "common/model/latent_weights.h"
#include "common/model/recurrent_weights.h"
#include "common/model/weight_loader.h"
#include "common/model/weights_hash.h"

namespace baton {
namespace {

Status LoadQkv(WeightLoader& loader,
               const ModelSpec& spec,
               const DecoderSlice& slice,
               int32_t layer,
               LayerWeights& to) {
  const auto id = [layer](WeightKind kind) { return WeightId{kind, layer, -1}; };
  const Extent q{int64_t{spec.heads} * spec.head_dim, RowsOfHeads(slice.heads, spec.head_dim)};
  const Extent kv{int64_t{spec.kv_heads} * spec.head_dim,
                  RowsOfHeads(slice.kv_heads, spec.head_dim)};
  const Extent hidden{spec.hidden};
  const Extent head_dim{spec.head_dim};
  BATON_ASSIGN_OR_RETURN(
      to.qkv,
      loader.LoadStacked(
          {{id(WeightKind::kQuery), q}, {id(WeightKind::kKey), kv}, {id(WeightKind::kValue), kv}},
          hidden));
  if (spec.qkv_bias) {
    BATON_ASSIGN_OR_RETURN(to.qkv_bias,
                           loader.LoadVectors({{id(WeightKind::kQueryBias), q},
                                               {id(WeightKind::kKeyBias), kv},
                                               {id(WeightKind::kValueBias), kv}}));
  }
  if (spec.qk_norm == QkNorm::kHead || spec.qk_norm == QkNorm::kHeadAfterRope) {
    BATON_ASSIGN_OR_RETURN(to.q_norm, loader.LoadVectors({{id(WeightKind::kQueryNorm), head_dim}}));
    BATON_ASSIGN_OR_RETURN(to.k_norm, loader.LoadVectors({{id(WeightKind::kKeyNorm), head_dim}}));
  } else if (spec.qk_norm == QkNorm::kUnitAfterRope) {
    if (spec.layers[layer].rotary) {
      const std::vector<float> ones(static_cast<size_t>(spec.head_dim), 1.0f);
      BATON_ASSIGN_OR_RETURN(to.q_norm, loader.LoadVector(ones));
      BATON_ASSIGN_OR_RETURN(to.k_norm, loader.LoadVector(ones));
    }
  } else if (spec.qk_norm != QkNorm::kNone) {
    BATON_ASSIGN_OR_RETURN(
        to.qk_norm,
        loader.LoadVectors({{id(WeightKind::kQueryNorm), q}, {id(WeightKind::kKeyNorm), kv}}));
  }
  if (spec.attention_gate) {
    BATON_ASSIGN_OR_RETURN(to.attention_gate,
                           loader.LoadStacked({{id(WeightKind::kQueryGate), q}}, hidden));
  }
  if (spec.attention_sinks) {
    BATON_ASSIGN_OR_RETURN(
        to.sinks,
        loader.LoadVectors({{id(WeightKind::kAttentionSinks), {spec.heads, slice.heads}}}));
  }
  return OkStatus();
}

Status LoadAttention(WeightLoader& loader,
                     const ModelSpec& spec,
                     const DecoderSlice& slice,
                     int32_t layer,
                     LayerWeights& to) {
  if (spec.latent_attention()) {
    BATON_RETURN_IF_ERROR(LoadLatent(loader, spec, slice, layer, to.latent));
  } else {
    BATON_RETURN_IF_ERROR(LoadQkv(loader, spec, slice, layer, to));
  }
  const auto id = [layer](WeightKind kind) { return WeightId{kind, layer, -1}; };
  const int32_t head_dim = spec.output_head_dim();
  const Extent heads{int64_t{spec.heads} * head_dim, RowsOfHeads(slice.heads, head_dim)};
  const Extent outputs{spec.hidden, slice.hidden};
  const Extent inputs{heads.size, slice.hidden ? std::nullopt : heads.range};
  BATON_ASSIGN_OR_RETURN(to.attention_output,
                         loader.LoadStacked({{id(WeightKind::kAttentionOutput), outputs}}, inputs));
  if (spec.o_bias) {
    BATON_ASSIGN_OR_RETURN(to.attention_output_bias,
                           loader.LoadVectors({{id(WeightKind::kAttentionOutputBias), outputs}}));
  }
  return OkStatus();
}

Status LoadDense(WeightLoader& loader,
                 const ModelSpec& spec,
                 const DecoderSlice& slice,
                 int32_t layer,
                 LayerWeights& to) {
  const auto id = [layer](WeightKind kind) { return WeightId{kind, layer, -1}; };
  const Extent inner{spec.intermediate, slice.intermediate};
  const Extent outputs{spec.hidden, slice.hidden};
  const Extent inputs{inner.size, slice.hidden ? std::nullopt : inner.range};
  const Extent hidden{spec.hidden};
  if (spec.joins_gate()) {
    BATON_ASSIGN_OR_RETURN(to.gate_up,
                           loader.LoadGateUp(id(WeightKind::kGate), id(WeightKind::kUp), inner));
  } else {
    if (spec.gated()) {
      BATON_ASSIGN_OR_RETURN(to.gate, loader.LoadStacked({{id(WeightKind::kGate), inner}}, hidden));
    }
    BATON_ASSIGN_OR_RETURN(to.gate_up, loader.LoadStacked({{id(WeightKind::kUp), inner}}, hidden));
  }
  BATON_ASSIGN_OR_RETURN(to.down, loader.LoadStacked({{id(WeightKind::kDown), outputs}}, inputs));
  if (!spec.mlp_bias) return OkStatus();
  const WeightPart up_bias{id(WeightKind::kUpBias), inner};
  if (spec.gated()) {
    BATON_ASSIGN_OR_RETURN(to.gate_up_bias,
                           loader.LoadVectors({{id(WeightKind::kGateBias), inner}, up_bias}));
  } else {
    BATON_ASSIGN_OR_RETURN(to.gate_up_bias, loader.LoadVectors({up_bias}));
  }
  BATON_ASSIGN_OR_RETURN(to.down_bias, loader.LoadVectors({{id(WeightKind::kDownBias), outputs}}));
  return OkStatus();
}

// The feed-forward network of all tokens beside the experts.
Status LoadShared(WeightLoader& loader,
                  const ModelSpec& spec,
                  const DecoderSlice& slice,
                  int32_t layer,
                  LayerWeights& to) {
  const auto id = [layer](WeightKind kind) { return WeightId{kind, layer, -1}; };
  const Extent inner{spec.moe.shared_intermediate, slice.shared_intermediate};
  const Extent outputs{spec.hidden, slice.hidden};
  const Extent inputs{inner.size, slice.hidden ? std::nullopt : inner.range};
  BATON_ASSIGN_OR_RETURN(
      to.shared_gate_up,
      spec.gated()
          ? loader.LoadGateUp(id(WeightKind::kSharedGate), id(WeightKind::kSharedUp), inner)
          : loader.LoadStacked({{id(WeightKind::kSharedUp), inner}}, {spec.hidden}));
  BATON_ASSIGN_OR_RETURN(to.shared_down,
                         loader.LoadStacked({{id(WeightKind::kSharedDown), outputs}}, inputs));
  if (spec.mlp_bias) {
    BATON_ASSIGN_OR_RETURN(to.shared_gate_up_bias,
                           loader.LoadVectors({{id(WeightKind::kSharedGateBias), inner},
                                               {id(WeightKind::kSharedUpBias), inner}}));
    BATON_ASSIGN_OR_RETURN(to.shared_down_bias,
                           loader.LoadVectors({{id(WeightKind::kSharedDownBias), outputs}}));
  }
  if (!spec.moe.shared_gate) return OkStatus();
  BATON_ASSIGN_OR_RETURN(
      to.shared_gate,
      loader.LoadStacked({{id(WeightKind::kSharedExpertGate), {1}}}, {spec.hidden}));
  return OkStatus();
}

Status LoadExperts(WeightLoader& loader,
                   const ModelSpec& spec,
                   const DecoderSlice& slice,
                   int32_t layer,
                   LayerWeights& to) {
  const Extent hidden{spec.hidden};
  const Extent inner{spec.moe.intermediate, slice.expert_intermediate};
  BATON_ASSIGN_OR_RETURN(
      to.router,
      loader.LoadStacked({{{WeightKind::kRouter, layer, -1}, {spec.moe.experts}}}, hidden));
  if (spec.moe.selection_bias) {
    BATON_ASSIGN_OR_RETURN(
        to.selection_bias,
        loader.LoadVectors({{{WeightKind::kSelectionBias, layer, -1}, {spec.moe.experts}}}));
  }
  if (spec.moe.biases) {
    BATON_ASSIGN_OR_RETURN(
        to.router_bias,
        loader.LoadVectors({{{WeightKind::kRouterBias, layer, -1}, {spec.moe.experts}}}));
  }
  const IndexRange experts = slice.experts.value_or(IndexRange{0, spec.moe.experts});
  for (auto expert = static_cast<int32_t>(experts.begin); expert < experts.end; ++expert) {
    const auto id = [&](WeightKind kind) { return WeightId{kind, layer, expert}; };
    BATON_ASSIGN_OR_RETURN(
        auto gate_up,
        spec.gated()
            ? loader.LoadGateUp(id(WeightKind::kExpertGate), id(WeightKind::kExpertUp), inner)
            : loader.LoadStacked({{id(WeightKind::kExpertUp), inner}}, hidden));
    BATON_ASSIGN_OR_RETURN(auto down,
                           loader.LoadStacked({{id(WeightKind::kExpertDown), hidden}}, inner));
    to.expert_gate_up.push_back(std::move(gate_up));
    to.expert_down.push_back(std::move(down));
    if (!spec.moe.biases) continue;
    BATON_ASSIGN_OR_RETURN(auto gate_up_bias,
                           loader.LoadVectors({{id(WeightKind::kExpertGateBias), inner},
                                               {id(WeightKind::kExpertUpBias), inner}}));
    BATON_ASSIGN_OR_RETURN(auto down_bias,
                           loader.LoadVectors({{id(WeightKind::kExpertDownBias), hidden}}));
    to.expert_gate_up_bias.push_back(std::move(gate_up_bias));
    to.expert_down_bias.push_back(std::move(down_bias));
  }
  return spec.moe.shared_intermediate > 0 ? LoadShared(loader, spec, slice, layer, to) : OkStatus();
}

// The first norm of a layer.
StatusOr<std::unique_ptr<Vector>> LoadFirstNorm(WeightLoader& loader,
                                                const ModelSpec& spec,
                                                int32_t layer) {
  if (!spec.layers[layer].mixes()) {
    return loader.LoadNorm(WeightKind::kFeedForwardNorm, WeightKind::kFeedForwardNormBias, layer);
  }
  return loader.LoadNorm(WeightKind::kAttentionNorm,
                         WeightKind::kAttentionNormBias,
                         layer,
                         spec.attention_input_scale);
}

Status LoadLayer(WeightLoader& loader,
                 const ModelSpec& spec,
                 const DecoderLoadOptions& options,
                 int32_t layer,
                 DecoderWeights& weights) {
  const DecoderSlice& slice = options.slice;
  LayerWeights& to = weights.layers.emplace_back();
  const LayerSpec& parts = spec.layers[layer];
  if (options.fp8_kv && parts.attention) {
    BATON_ASSIGN_OR_RETURN(
        to.kv_scales, loader.LoadKvScales(layer, weights.RopeOf(parts).magnitude, slice.kv_heads));
  }
  if (spec.input_norms() && parts.mixes()) {
    BATON_ASSIGN_OR_RETURN(to.attention_norm, LoadFirstNorm(loader, spec, layer));
  }
  if (parts.attention) BATON_RETURN_IF_ERROR(LoadAttention(loader, spec, slice, layer, to));
  if (parts.state) {
    BATON_RETURN_IF_ERROR(LoadRecurrent(loader, spec, slice, layer, to.recurrent));
  }
  if (!parts.feed_forward) return OkStatus();
  if (spec.feed_forward_norms()) {
    BATON_ASSIGN_OR_RETURN(
        to.feed_forward_norm,
        loader.LoadNorm(WeightKind::kFeedForwardNorm, WeightKind::kFeedForwardNormBias, layer));
  }
  if (spec.post_norms()) {
    BATON_ASSIGN_OR_RETURN(
        to.attention_post_norm,
        loader.LoadVectors({{{WeightKind::kAttentionPostNorm, layer, -1}, {spec.hidden}}}));
    BATON_ASSIGN_OR_RETURN(
        to.feed_forward_post_norm,
        loader.LoadVectors({{{WeightKind::kFeedForwardPostNorm, layer, -1}, {spec.hidden}}}));
  }
  const auto load_feed_forward = parts.moe ? LoadExperts : LoadDense;
  return load_feed_forward(loader, spec, slice, layer, to);
}

// Loads the slice of the options, in the order of the layers.
StatusOr<DecoderWeights> LoadSlice(WeightLoader& loader,
                                   const ModelSpec& spec,
                                   const DecoderLoadOptions& options) {
  const DecoderSlice& slice = options.slice;
  DecoderWeights weights;
  const IndexRange layers = slice.layers.value_or(IndexRange{0, spec.layer_count()});
  const bool first = layers.begin == 0;
  const bool last = layers.end == spec.layer_count();
  const auto steps = static_cast<double>(layers.size() + 2);
  double done = 0;
  const auto advance = [&] {
    if (options.progress) options.progress(++done / steps);
  };
  const Extent hidden{spec.hidden};
  const Extent vocab{spec.vocab, slice.vocab};
  if (first || (last && spec.embedding_is_head())) {
    BATON_ASSIGN_OR_RETURN(weights.embedding,
                           loader.LoadStacked({{{WeightKind::kEmbedding}, vocab}}, hidden));
  }
  BATON_RETURN_IF_ERROR(loader.LoadRope(weights));
  advance();
  for (auto layer = static_cast<int32_t>(layers.begin); layer < layers.end; ++layer) {
    BATON_RETURN_IF_ERROR(LoadLayer(loader, spec, options, layer, weights));
    advance();
  }
  if (last) {
    BATON_ASSIGN_OR_RETURN(
        weights.next_norm,
        loader.LoadNorm(
            WeightKind::kOutputNorm, WeightKind::kOutputNormBias, -1, spec.logit_scale));
  } else if (spec.input_norms()) {
    BATON_ASSIGN_OR_RETURN(weights.next_norm,
                           LoadFirstNorm(loader, spec, static_cast<int32_t>(layers.end)));
  }
  if (last && spec.head_bias) {
    BATON_ASSIGN_OR_RETURN(weights.head_bias,
                           loader.LoadVectors({{{WeightKind::kHeadBias}, vocab}}));
  }
  if (last && !spec.embedding_is_head()) {
    BATON_ASSIGN_OR_RETURN(weights.head,
                           loader.LoadStacked({{{WeightKind::kHead}, vocab}}, hidden));
  }
  advance();
  weights.bytes = loader.bytes();
  return weights;
}

// Checks every weight of the model, and that those of the slice can be cut from it. A rank checks
// the weights of the other ranks, too, because without them its own are loaded for nothing. Returns
// the weights of the model.
StatusOr<std::vector<WeightId>> CheckWeights(const ModelSpec& spec,
                                             const WeightSource& source,
                                             const DecoderLoadOptions& options) {
  WeightLoader check(spec, source, options.bf16);
  BATON_RETURN_IF_ERROR(LoadSlice(check, spec, {}).status());
  std::vector<WeightId> weights = check.TakeIds();
  BATON_RETURN_IF_ERROR(LoadSlice(check, spec, {.slice = options.slice}).status());
  return weights;
}

}  // namespace

bool MayUseFp8(const ModelSpec& spec, const WeightId& id, const Bf16Layers& bf16) {
  switch (id.kind) {
    case WeightKind::kQuery:
    case WeightKind::kKey:
    case WeightKind::kValue:
      return true;
    case WeightKind::kAttentionOutput:
      return id.layer >= bf16.first_attention_outputs;
    case WeightKind::kGate:
    case WeightKind::kUp:
    case WeightKind::kDown:
    case WeightKind::kExpertGate:
    case WeightKind::kExpertUp:
    case WeightKind::kExpertDown:
    case WeightKind::kSharedGate:
    case WeightKind::kSharedUp:
    case WeightKind::kSharedDown:
      return id.layer >= bf16.first_mlps && id.layer < spec.layer_count() - bf16.last_mlps;
    default:
      return false;
  }
}

Status CheckAllWeights(const ModelSpec& spec, const WeightSource& source) {
  return CheckWeights(spec, source, {}).status();
}

StatusOr<DecoderWeights> LoadDecoderWeights(const ModelSpec& spec,
                                            const WeightSource& source,
                                            Ops& ops,
                                            const DecoderLoadOptions& options) {
  BATON_RETURN_IF_ERROR(options.slice.Validate(spec));
  BATON_ASSIGN_OR_RETURN(const auto all, CheckWeights(spec, source, options));
  WeightsHasher hasher(source,
                       {.layers = options.slice.layers.value_or(IndexRange{0, spec.layer_count()}),
                        .layer_count = spec.layer_count(),
                        .experts = spec.moe.experts,
                        .share = options.hashed});
  WeightLoader loader(spec, source, options.bf16, ops, hasher);
  BATON_ASSIGN_OR_RETURN(DecoderWeights weights, LoadSlice(loader, spec, options));
  weights.hash = hasher.Finish(all);
  return weights;
}

}  // namespace baton
