#pragma once

#include <string>
#include <string_view>

#include "common/model/model_spec.h"
#include "common/model/weight_source.h"

namespace baton {

// The tensor names of a kind of checkpoint. kMixtral: the Hugging Face names with Mixtral's names
// for the router and the experts. kGateUp, kGgufGateUp: those of Hugging Face and of GGUF, with
// gate and up in one tensor.
enum class NamingScheme : uint8_t { kHuggingFace, kMixtral, kGateUp, kGguf, kGgufGateUp };

constexpr bool IsGguf(NamingScheme scheme) {
  return scheme == NamingScheme::kGguf || scheme == NamingScheme::kGgufGateUp;
}

// The scheme of a Hugging Face directory.
NamingScheme HuggingFaceNames(ModelFamily family);
// The scheme of a GGUF file.
NamingScheme GgufNames(ModelFamily family);

struct TensorName {
  std::string tensor;
  // The weight is slice [expert] of a tensor with an additional outermost dimension (GGUF experts).
  bool stacked = false;
  // When stacked: the name of the slice in files from before April 2024, where it is a separate
  // tensor.
  std::string slice;
  // The weight has the rows of part `part` of `parts` equal parts of the tensor.
  int32_t part = 0;
  int32_t parts = 1;
};

// For example "model.layers.3.self_attn.q_proj.weight" or "blk.3.attn_q.weight".
TensorName NameOf(const WeightId& id, NamingScheme scheme);

}  // namespace baton
