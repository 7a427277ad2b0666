#include "common/model/op_variants.h"

#include <algorithm>

#include "common/model/latent_graph.h"

namespace baton {

namespace {

OpVariant VariantOf(RecurrentRule rule) {
  switch (rule) {
    case RecurrentRule::kDelta:
      return OpVariant::kDeltaNet;
    case RecurrentRule::kChannelDelta:
      return OpVariant::kChannelDelta;
    case RecurrentRule::kStateSpace:
      return OpVariant::kStateSpace;
    case RecurrentRule::kSelectiveScan:
      break;
  }
  return OpVariant::kSelectiveScan;
}

}  // namespace

std::vector<OpVariant> VariantsOf(const ModelSpec& spec) {
  std::vector<OpVariant> variants;
  const auto add_if = [&](bool needed, OpVariant variant) {
    if (needed) variants.push_back(variant);
  };
  const MoeSpec& moe = spec.moe;
  const bool experts = std::ranges::any_of(spec.layers, &LayerSpec::moe);
  const RecurrentSpec& recurrent = spec.recurrent;
  add_if(spec.embedding_scale != spec.residual_scale || spec.attention_output_scale != 1 ||
             spec.feed_forward_scale != 1 || recurrent.output_scale != 1,
         OpVariant::kScale);
  add_if(spec.norm != NormKind::kRms || spec.latent.index.heads > 0, OpVariant::kLayerNorm);
  const bool squared = spec.feed_forward == FeedForward::kSquaredRelu;
  add_if(!spec.gated() && !squared, OpVariant::kActivation);
  add_if(squared, OpVariant::kSquaredRelu);
  add_if(spec.gated() && !spec.silu(), OpVariant::kGatedActivation);
  add_if(spec.gate_scale != 1, OpVariant::kScaledGate);
  add_if(experts && moe.shared_gate, OpVariant::kSigmoidGate);
  add_if(spec.qk_norm == QkNorm::kProjection, OpVariant::kProjectionNorm);
  add_if(spec.qk_norm == QkNorm::kHeadLayer, OpVariant::kHeadLayerNorm);
  add_if(spec.norms_after_rope(), OpVariant::kHeadNormAfterRope);
  add_if(!spec.input_norms(), OpVariant::kResidualGemm);
  add_if(spec.latent_attention(), OpVariant::kLatentAttention);
  add_if(spec.latent.index.heads > 0, OpVariant::kSparseAttention);
  if (spec.state_layers() > 0) variants.push_back(VariantOf(recurrent.shape.rule));
  add_if(spec.attention_gate, OpVariant::kAttentionGate);
  add_if(experts && (moe.score != RouterScore::kSoftmax || moe.selection_bias || moe.groups > 1 ||
                     moe.scale != 1 || moe.least_sum != 0 || moe.weighted_inputs),
         OpVariant::kRouting);
  add_if(experts && (moe.score == RouterScore::kSigmoidOfLogits || moe.weighted_inputs),
         OpVariant::kWeightedInputs);
  add_if(spec.attention_sinks, OpVariant::kAttentionSinks);
  add_if(std::ranges::any_of(spec.layers, [](const LayerSpec& layer) { return layer.chunk > 0; }),
         OpVariant::kChunkedAttention);
  add_if(spec.query_scaling.slope != 0, OpVariant::kQueryScaling);
  add_if(spec.attention_cap != 0 || spec.logit_cap != 0, OpVariant::kSoftCap);
  add_if(experts && moe.biases, OpVariant::kExpertBias);
  add_if(experts && moe.gate.limit != 0, OpVariant::kClampedGate);
  add_if(experts && moe.gate.ungated, OpVariant::kUngatedExperts);
  return variants;
}

ModelShape ModelShapeOf(const ModelSpec& spec, const RankPlan& plan, bool fp8_kv) {
  const bool experts = std::ranges::any_of(spec.layers, &LayerSpec::moe);
  return {.heads = plan.heads,
          .hidden = spec.hidden,
          .vocabulary = spec.vocab,
          .experts = experts ? spec.moe.experts : 0,
          .experts_per_token = spec.moe.experts_per_token,
          .expert_width = spec.moe.intermediate,
          .fp8_kv = fp8_kv,
          .latent = LatentShapeOf(spec, plan),
          .index = spec.latent.index,
          .variants = VariantsOf(spec)};
}

}  // namespace baton
