#pragma once

#include <string>
#include <string_view>

#include "common/model/model_spec.h"
#include "common/model/weight_source.h"

namespace baton {

// How a kind of checkpoint files calls its tensors. kMixtral: Hugging Face's names, with those of
// Mixtral's experts.
enum class NamingScheme : uint8_t { kHuggingFace, kMixtral, kGguf };

// The scheme of a Hugging Face directory.
NamingScheme HuggingFaceNames(ModelFamily family);

struct TensorName {
  std::string tensor;
  // The weight is slice [expert] of a tensor with one more dimension outside (GGUF's experts).
  bool stacked = false;
  // Stacked: what files from before April 2024 call the slice, a tensor of its own.
  std::string slice;
};

// "model.layers.3.self_attn.q_proj.weight" or "blk.3.attn_q.weight".
TensorName NameOf(const WeightId& id, NamingScheme scheme);

}  // namespace baton
