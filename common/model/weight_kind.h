#pragma once

#include <cstdint>

namespace baton {

// The role of a weight, independent of its name in a file. Matrices are [outputs][inputs].
enum class WeightKind : uint8_t {
  kEmbedding,       // [vocab][hidden]
  kOutputNorm,      // [hidden]
  kOutputNormBias,  // [hidden]
  kHead,            // [vocab][hidden]
  kHeadBias,        // [vocab]
  kRopeFactors,     // [rotary_dim / 2]: divisors of the rope frequencies
  // One per layer:
  kAttentionNorm,
  kAttentionNormBias,
  kQuery,
  kKey,
  kValue,
  kAttentionOutput,
  kQueryBias,
  kKeyBias,
  kValueBias,
  kAttentionOutputBias,
  kAttentionSinks,  // [heads]
  kQueryNorm,
  kKeyNorm,
  // Multi-head latent attention:
  kQueryDown,  // [latent of queries][hidden]
  kQueryDownBias,
  kQueryDownNorm,
  kQueryUp,     // [heads · query dimension][latent of queries]
  kLatentDown,  // [latent | rotated part of the keys][hidden]
  kLatentDownBias,
  kLatentNorm,
  kLatentUp,  // by head, the rows of keys before those of values, [latent] each
  // In place of kLatentUp (LatentSpec::two_tensors), by head:
  kLatentKeys,    // [latent][head dimension without rope]
  kLatentValues,  // [head dimension of values][latent]
  // The index of tokens (IndexShape):
  kIndexQuery,        // [index heads · dimension][latent of queries]
  kIndexKey,          // [dimension][hidden]
  kIndexKeyNorm,      // [dimension]
  kIndexKeyNormBias,  // [dimension]
  kIndexWeights,      // [index heads][hidden]
  kQueryGate,         // [heads · head_dim][hidden]: ModelSpec::attention_gate
  // Recurrent layers (RecurrentOps), whose RecurrentShape gives the sizes:
  // [input_columns()][hidden]; Mamba 2: and the gates; Mamba: [v | z]. With
  // RecurrentSpec::inputs_by_kind: [q | k | v] of all heads each.
  kRecurrentInput,
  kRecurrentGates,  // [gate_columns()][hidden], of gated delta nets
  kRecurrentZ,      // RecurrentSpec::inputs_by_kind: [value heads · value dimension][hidden]
  kRecurrentTimes,  // gates_by_kind, beside kRecurrentBeta: [value heads][hidden]
  // [channels of all heads][kernel]; Kimi delta attention: of q, with those of k and v apart
  kRecurrentConvolution,
  kRecurrentConvolutionBias,
  kRecurrentKeyConvolution,
  kRecurrentValueConvolution,
  kRecurrentBeta,      // [value heads][hidden]
  kRecurrentTimeDown,  // the same: [latent_rank][hidden]; Mamba: [times | k | q][v]
  kRecurrentTimeUp,    // [gate_columns()][latent_rank]
  kRecurrentTimeNorm,  // Mamba: [latent_rank]
  kRecurrentKeyNorm,   // and [key_dim]
  kRecurrentQueryNorm,
  kRecurrentGateDown,  // Kimi delta attention: [latent_rank][hidden]
  kRecurrentGateUp,    // [value heads · value dimension][latent_rank]
  kRecurrentDecay,     // RecurrentArgs::decay; Mamba: [v][key_dim]
  kRecurrentTimeBias,  // RecurrentArgs::time_bias
  kRecurrentSkip,      // RecurrentArgs::skip
  kRecurrentNorm,      // RecurrentArgs::norm
  kRecurrentOutput,    // [hidden][value heads · value dimension]
  kFeedForwardNorm,
  kFeedForwardNormBias,
  kAttentionPostNorm,
  kFeedForwardPostNorm,
  kGate,
  kUp,
  kDown,
  kGateBias,
  kUpBias,
  kDownBias,
  kRouter,         // [experts][hidden]
  kRouterBias,     // [experts]: ExpertArgs::router_bias
  kSelectionBias,  // [experts]: RouterArgs::selection_bias
  kSharedGate,     // the feed-forward network of all tokens beside the experts
  kSharedUp,
  kSharedDown,
  kSharedGateBias,
  kSharedUpBias,
  kSharedDownBias,
  kSharedExpertGate,  // [1][hidden]
  // One per layer and expert:
  kExpertGate,
  kExpertUp,
  kExpertDown,
  kExpertGateBias,
  kExpertUpBias,
  kExpertDownBias,
};

}  // namespace baton
