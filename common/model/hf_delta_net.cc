#include "common/model/hf_delta_net.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/kvcache/layout.h"

namespace baton {
namespace {

// layer_types lists the kinds of the layers. Older files have only the interval of layers with
// attention, which is the last one of each interval.
Status ReadLayerKinds(JsonFields& fields, ModelSpec& spec) {
  const int32_t interval = fields.IntOr("full_attention_interval", 4, 1, kMaxLayers);
  for (int32_t i = 0; i < spec.layer_count(); ++i) {
    spec.layers[i].state = (i + 1) % interval != 0;
    spec.layers[i].attention = !spec.layers[i].state;
  }
  if (!fields.Has("layer_types")) return fields.status();
  BATON_ASSIGN_OR_RETURN(
      const std::vector<bool> recurrent,
      fields.LayersOfKind("layer_types", spec.layers.size(), "linear_attention", "full_attention"));
  for (size_t i = 0; i < recurrent.size(); ++i) {
    spec.layers[i].state = recurrent[i];
    spec.layers[i].attention = !recurrent[i];
  }
  return fields.status();
}

}  // namespace

bool HasDeltaNets(ModelFamily family) {
  return family == ModelFamily::kQwen3Next || IsQwen35(family);
}

Status ReadDeltaNets(JsonFields& fields, ModelSpec& spec) {
  const auto size = [&fields](std::string_view key, int32_t fallback, int32_t largest) {
    return fields.IntOr(key, fallback, 1, largest);
  };
  spec.recurrent.shape = {.key_heads = size("linear_num_key_heads", 16, ModelSpec::kMaxHeads),
                          .value_heads = size("linear_num_value_heads", 32, ModelSpec::kMaxHeads),
                          .key_dim = size("linear_key_head_dim", 128, ModelSpec::kMaxHeadDim),
                          .value_dim = size("linear_value_head_dim", 128, ModelSpec::kMaxHeadDim),
                          .kernel = size("linear_conv_kernel_dim", 4, 64)};
  spec.recurrent.inputs_by_kind = spec.recurrent.gates_by_kind = IsQwen35(spec.family);
  spec.attention_gate = true;
  if (fields.BoolOr("attention_bias", false)) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: attention_bias is true; only false is supported",
                      fields.file());
  }
  return ReadLayerKinds(fields, spec);
}

}  // namespace baton
