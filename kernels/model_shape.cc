#include "kernels/model_shape.h"

#include "common/base/check.h"

namespace baton {

std::string_view Describe(OpVariant variant) {
  switch (variant) {
    case OpVariant::kScale:
      return "scaled embeddings";
    case OpVariant::kLayerNorm:
      return "LayerNorm";
    case OpVariant::kActivation:
      return "GELU feed-forward networks without a gate";
    case OpVariant::kSquaredRelu:
      return "feed-forward networks with a squared ReLU";
    case OpVariant::kScaledGate:
      return "feed-forward networks with a scaled gate";
    case OpVariant::kGatedActivation:
      return "feed-forward networks gated by GELU";
    case OpVariant::kSigmoidGate:
      return "a gate for the shared expert";
    case OpVariant::kProjectionNorm:
      return "norms over all heads of q and k together";
    case OpVariant::kHeadLayerNorm:
      return "LayerNorm of the heads of q and k";
    case OpVariant::kHeadNormAfterRope:
      return "norms of q and k after the rotary embedding";
    case OpVariant::kResidualGemm:
      return "layers without input norms";
    case OpVariant::kLatentAttention:
      return "multi-head latent attention";
    case OpVariant::kSparseAttention:
      return "attention to selected tokens";
    case OpVariant::kDeltaNet:
      return "gated delta nets";
    case OpVariant::kChannelDelta:
      return "Kimi delta attention";
    case OpVariant::kStateSpace:
      return "Mamba 2 layers";
    case OpVariant::kSelectiveScan:
      return "Mamba layers";
    case OpVariant::kAttentionGate:
      return "a gate of attention";
    case OpVariant::kRouting:
      return "a router with sigmoid scores, a selection bias, groups or a scale";
    case OpVariant::kWeightedInputs:
      return "experts whose inputs are weighted";
    case OpVariant::kAttentionSinks:
      return "attention sinks";
    case OpVariant::kChunkedAttention:
      return "attention in chunks";
    case OpVariant::kQueryScaling:
      return "queries scaled by their position";
    case OpVariant::kSoftCap:
      return "soft-capped logits";
    case OpVariant::kExpertBias:
      return "biases of the router and of experts";
    case OpVariant::kClampedGate:
      return "experts with a clamped gate";
    case OpVariant::kUngatedExperts:
      return "experts without a gate";
  }
  BATON_CHECK(false, "variant {}", static_cast<int>(variant));
}

}  // namespace baton
