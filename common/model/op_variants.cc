#include "common/model/op_variants.h"

#include <algorithm>

namespace baton {

std::vector<OpVariant> VariantsOf(const ModelSpec& spec) {
  std::vector<OpVariant> variants;
  const auto add_if = [&](bool needed, OpVariant variant) {
    if (needed) variants.push_back(variant);
  };
  const MoeSpec& moe = spec.moe;
  const bool experts = std::ranges::any_of(spec.layers, &LayerSpec::moe);
  add_if(spec.embedding_scale != spec.residual_scale, OpVariant::kScale);
  add_if(spec.norm != NormKind::kRms || spec.latent.index.heads > 0, OpVariant::kLayerNorm);
  add_if(!spec.gated(), OpVariant::kActivation);
  add_if(spec.gated() && !spec.silu(), OpVariant::kGatedActivation);
  add_if(experts && moe.shared_gate, OpVariant::kSigmoidGate);
  add_if(spec.qk_norm == QkNorm::kProjection, OpVariant::kProjectionNorm);
  add_if(spec.qk_norm == QkNorm::kHeadLayer, OpVariant::kHeadLayerNorm);
  add_if(spec.norms_after_rope(), OpVariant::kHeadNormAfterRope);
  add_if(!spec.input_norms(), OpVariant::kResidualGemm);
  add_if(spec.latent_attention(), OpVariant::kLatentAttention);
  add_if(spec.latent.index.heads > 0, OpVariant::kSparseAttention);
  add_if(spec.delta_net_layers() > 0, OpVariant::kDeltaNet);
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
  add_if(experts && moe.gate != ExpertGate(), OpVariant::kClampedGate);
  return variants;
}

}  // namespace baton
