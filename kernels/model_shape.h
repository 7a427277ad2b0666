#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/latent_ops.h"
#include "kernels/step_input.h"

namespace baton {

// What only some model families need of a backend: ops (FamilyOps) and variants of ops. Not every
// backend has each of them.
enum class OpVariant : uint8_t {
  kScale,              // FamilyOps::Scale
  kLayerNorm,          // FamilyOps::LayerNorm
  kActivation,         // FamilyOps::Activate: feed-forward networks without a gate
  kSquaredRelu,        // the same with Activation::kSquaredRelu
  kGatedActivation,    // FamilyOps::Activate and Multiply: networks gated by another one than silu
  kScaledGate,         // the same with Activation::kSilu and a scale
  kSigmoidGate,        // FamilyOps::MulSigmoid
  kProjectionNorm,     // FamilyOps::HeadSquares and NormProjections
  kHeadLayerNorm,      // FamilyOps::HeadLayerNorm
  kHeadNormAfterRope,  // RopeArgs::norm_after_rope
  kResidualGemm,       // GEMMs of the residual itself, in layers without input norms
  kLatentAttention,    // LatentOps
  kSparseAttention,    // LatentOps::SelectTokens
  // RecurrentOps with one of the rules, and states (KvNeeds::states)
  kDeltaNet,
  kChannelDelta,
  kStateSpace,
  kSelectiveScan,
  kAttentionGate,     // FamilyOps::MulSigmoid with a gate for each number
  kRouting,           // any member of RouterArgs but the default
  kWeightedInputs,    // RouterArgs::weighted_inputs and RouterScore::kSigmoidOfLogits
  kAttentionSinks,    // AttentionArgs::sinks
  kChunkedAttention,  // AttentionArgs::chunk
  kQueryScaling,      // RopeArgs::query_scaling
  kSoftCap,           // AttentionArgs::cap, FamilyOps::SoftCap
  kExpertBias,        // ExpertArgs::router_bias, gate_up_bias and down_bias
  kClampedGate,       // ExpertArgs::gate with a limit
  kUngatedExperts,    // ExpertGate::ungated
};

// For messages: the end of "the model needs …".
std::string_view Describe(OpVariant variant);

// The sizes of a model by which a backend decides whether it can run the model, and what the model
// needs besides the ops that every family uses.
struct ModelShape {
  HeadShape heads;
  int32_t hidden = 0;
  int32_t vocabulary = 0;
  int32_t experts = 0;  // 0: no layer has experts
  int32_t experts_per_token = 0;
  int32_t expert_width = 0;  // intermediate size of one expert
  bool fp8_kv = false;       // the KV cache is in FP8 (E4M3)
  LatentShape latent = {};
  IndexShape index = {};
  std::vector<OpVariant> variants = {};
};

}  // namespace baton
