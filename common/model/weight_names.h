#pragma once

#include <string>
#include <string_view>

#include "common/model/weight_source.h"

namespace baton {

// How a kind of checkpoint files calls its tensors.
enum class NamingScheme : uint8_t { kHuggingFace, kGguf };

struct TensorName {
  std::string tensor;
  // The weight is slice [expert] of a tensor with one more dimension outside (GGUF's experts).
  bool stacked = false;
};

// "model.layers.3.self_attn.q_proj.weight" or "blk.3.attn_q.weight".
TensorName NameOf(const WeightId& id, NamingScheme scheme);

}  // namespace baton
