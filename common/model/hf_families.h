#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/model/model_spec.h"

namespace baton {

// A boolean of config.json that says whether a part of the model has biases. Without a key, `value`
// holds for every model of the family; else it holds where the key is absent.
struct BiasKey {
  std::string_view key = "";
  bool value = false;
};

// A family as config.json describes it: its blocks, the keys that its configurations have, and what
// holds where a key is absent.
struct HfFamily {
  std::string_view architecture;
  BiasKey qkv_bias = {};
  BiasKey o_bias = {};
  BiasKey mlp_bias = {};
  BiasKey head_bias = {};
  std::string_view context_key = "max_position_embeddings";
  std::string_view epsilon_key = "rms_norm_eps";
  double epsilon = 1e-6;
  double theta = 1e4;
  double rotated = 1;  // partial_rotary_factor
  RopePairing pairing = RopePairing::kHalves;
  int32_t head_dim = 0;  // 0: hidden size / heads
  int32_t kv_heads = 0;  // 0: as many as heads

  ModelFamily family = ModelFamily::kLlama;
  NormKind norm = NormKind::kRms;
  ResidualForm residual = ResidualForm::kPreNorm;
  QkNorm qk_norm = QkNorm::kNone;
  bool attention_sinks = false;
  bool tied_head = false;
};

// In the order in which errors list the architectures.
std::span<const HfFamily> HfFamilies();

// The family whose architecture or model_type is most like `name`, which is neither; null: none is
// like it.
const HfFamily* NearestFamily(std::string_view name);

}  // namespace baton
