#include "common/model/hf_kimi.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "common/kvcache/layout.h"

namespace baton {
namespace {

// What the keys of both generations of files say.
struct KimiKeys {
  std::string_view heads;
  std::string_view head_dim;
  std::string_view kernel;
};

void ReadSizes(JsonFields& fields, const KimiKeys& keys, ModelSpec& spec) {
  RecurrentShape& shape = spec.recurrent.shape;
  shape.rule = RecurrentRule::kChannelDelta;
  shape.key_heads = shape.value_heads = fields.IntOr(keys.heads, 32, 1, ModelSpec::kMaxHeads);
  shape.key_dim = shape.value_dim = fields.IntOr(keys.head_dim, 128, 1, ModelSpec::kMaxHeadDim);
  shape.kernel = fields.IntOr(keys.kernel, 4, 1, 64);
  spec.recurrent.latent_rank = shape.value_dim;
}

// The lists of published files begin with layer 1. Each layer is in one of them.
Status ReadLists(JsonFields& lists, ModelSpec& spec) {
  std::vector<bool> listed(spec.layers.size(), false);
  for (const std::string_view key : {"full_attn_layers", "kda_layers"}) {
    const std::vector<int32_t> numbers = lists.IntsOr(key, 1, spec.layer_count());
    BATON_RETURN_IF_ERROR(lists.status());
    for (const int32_t number : numbers) {
      const auto index = static_cast<size_t>(number) - 1;
      if (listed[index]) {
        return InvalidArgument("{}: layer {} is listed twice in full_attn_layers and kda_layers",
                               lists.file(),
                               number);
      }
      listed[index] = true;
      spec.layers[index].state = key == "kda_layers";
    }
  }
  for (size_t i = 0; i < listed.size(); ++i) {
    if (listed[i]) continue;
    return InvalidArgument(
        "{}: layer {} is in neither full_attn_layers nor kda_layers", lists.file(), i + 1);
  }
  return OkStatus();
}

Status ReadTypes(JsonFields& fields, ModelSpec& spec) {
  BATON_ASSIGN_OR_RETURN(
      const std::vector<bool> recurrent,
      fields.LayersOfKind("layer_types", spec.layers.size(), "linear_attention", "full_attention"));
  for (size_t i = 0; i < recurrent.size(); ++i) spec.layers[i].state = recurrent[i];
  return OkStatus();
}

}  // namespace

Status ReadKimi(JsonFields& fields, ModelSpec& spec) {
  if (!fields.BoolOr("mla_use_nope", true)) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: mla_use_nope is false; only true is supported",
                      fields.file());
  }
  if (fields.Has("linear_attn_config")) {
    BATON_ASSIGN_OR_RETURN(const auto config, fields.Object("linear_attn_config"));
    ReadSizes(*config, {"num_heads", "head_dim", "short_conv_kernel_size"}, spec);
    BATON_RETURN_IF_ERROR(ReadLists(*config, spec));
    BATON_RETURN_IF_ERROR(config->status());
  } else {
    ReadSizes(fields, {"linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"}, spec);
    BATON_RETURN_IF_ERROR(ReadTypes(fields, spec));
  }
  for (LayerSpec& layer : spec.layers) {
    layer.attention = !layer.state;
    layer.rotary = false;
  }
  return fields.status();
}

}  // namespace baton
