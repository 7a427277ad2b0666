#include "kernels/cuda/table/variant_check.h"

#include <string>

#include <fmt/format.h>

namespace baton::cuda {
namespace {

bool Has(OpVariant variant) {
  switch (variant) {
    case OpVariant::kSparseAttention:
      return false;
    case OpVariant::kLatentAttention:
    case OpVariant::kDeltaNet:
    case OpVariant::kChannelDelta:
    case OpVariant::kStateSpace:
    case OpVariant::kSelectiveScan:
    case OpVariant::kScale:
    case OpVariant::kLayerNorm:
    case OpVariant::kActivation:
    case OpVariant::kSquaredRelu:
    case OpVariant::kGatedActivation:
    case OpVariant::kScaledGate:
    case OpVariant::kSigmoidGate:
    case OpVariant::kProjectionNorm:
    case OpVariant::kHeadLayerNorm:
    case OpVariant::kHeadNormAfterRope:
    case OpVariant::kResidualGemm:
    case OpVariant::kAttentionGate:
    case OpVariant::kRouting:
    case OpVariant::kAttentionSinks:
    case OpVariant::kSoftCap:
    case OpVariant::kExpertBias:
    case OpVariant::kClampedGate:
    case OpVariant::kUngatedExperts:
    case OpVariant::kWeightedInputs:
    case OpVariant::kChunkedAttention:
    case OpVariant::kQueryScaling:
      break;
  }
  return true;
}

}  // namespace

Status CheckVariants(std::span<const OpVariant> variants) {
  std::string lacking;
  for (const OpVariant variant : variants) {
    if (Has(variant)) continue;
    lacking += fmt::format("{}{}", lacking.empty() ? "" : "; ", Describe(variant));
  }
  if (lacking.empty()) return OkStatus();
  return MakeStatus(StatusCode::kUnimplemented,
                    "the CUDA backend does not have what the model needs: {}; the CPU backend does "
                    "(engine.device: cpu)",
                    lacking);
}

}  // namespace baton::cuda
