#include "common/model/gguf_recurrent.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/kvcache/layout.h"
#include "common/model/gguf_config.h"
#include "common/model/hf_mamba.h"

namespace baton {
namespace {

constexpr int32_t kMaxKernel = 64;

// The number that the layers with one have, 0 where no layer has one.
StatusOr<int32_t> OneSize(const GgufFields& fields,
                          std::string_view key,
                          const std::vector<int32_t>& sizes) {
  int32_t one = 0;
  for (const int32_t size : sizes) {
    if (size == 0 || size == one) continue;
    if (one != 0) {
      return MakeStatus(StatusCode::kUnimplemented,
                        "{}: {} is {} in one layer and {} in another, which is not supported",
                        fields.file(),
                        key,
                        one,
                        size);
    }
    one = size;
  }
  return one;
}

// A layer of Nemotron-H is attention, a feed-forward network or Mamba 2.
Status ReadNetworks(GgufFields& fields, const GgufFile& gguf, ModelSpec& spec) {
  constexpr std::string_view kSizes = "feed_forward_length";
  BATON_ASSIGN_OR_RETURN(
      std::vector<int32_t> sizes,
      fields.OfLayers(kSizes, spec.layers.size(), 0, ModelSpec::kMaxIntermediate));
  for (size_t i = 0; i < sizes.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.feed_forward = !layer.attention && sizes[i] > 0;
    layer.state = !layer.attention && !layer.feed_forward;
    // Layers with experts are listed with the size of one expert.
    if (HasTensor(gguf, WeightKind::kRouter, static_cast<int32_t>(i))) sizes[i] = 0;
  }
  BATON_ASSIGN_OR_RETURN(spec.intermediate, OneSize(fields, kSizes, sizes));
  return OkStatus();
}

// The sizes that both kinds of recurrent layers have under the same keys.
Status ReadShape(GgufFields& fields, RecurrentRule rule, RecurrentShape& shape) {
  shape.rule = rule;
  shape.key_heads = fields.Int("ssm.group_count", 1, ModelSpec::kMaxHeads);
  shape.key_dim = fields.Int("ssm.state_size", 1, ModelSpec::kMaxHeadDim);
  shape.value_heads = fields.Int("ssm.time_step_rank", 1, ModelSpec::kMaxHeads);
  shape.kernel = fields.Int("ssm.conv_kernel", 1, kMaxKernel);
  const int32_t inner = fields.Int("ssm.inner_size", 1, ModelSpec::kMaxIntermediate);
  BATON_RETURN_IF_ERROR(fields.status());
  if (inner % shape.value_heads != 0) {
    return InvalidArgument("{}: ssm.inner_size {} is not a multiple of ssm.time_step_rank {}",
                           fields.file(),
                           inner,
                           shape.value_heads);
  }
  shape.value_dim = inner / shape.value_heads;
  return OkStatus();
}

// The value heads of Qwen 3.5 are in another order than in its Hugging Face files: the first one of
// each key head, then the second ones. The columns of the output's projection are in this order,
// too, and blocks of quantized numbers can span heads, so the model keeps it: each value head has a
// key head of its own.
Status TileKeys(const GgufFields& fields, RecurrentSpec& recurrent) {
  RecurrentShape& shape = recurrent.shape;
  if (shape.value_heads % shape.key_heads != 0) {
    return InvalidArgument("{}: ssm.time_step_rank {} is not a multiple of ssm.group_count {}",
                           fields.file(),
                           shape.value_heads,
                           shape.key_heads);
  }
  if (shape.value_heads == shape.key_heads) return OkStatus();
  recurrent.tiled_keys = shape.key_heads;
  shape.key_heads = shape.value_heads;
  return OkStatus();
}

}  // namespace

bool ListsLayersInGguf(ModelFamily family) {
  return family == ModelFamily::kJamba || family == ModelFamily::kNemotronH ||
         family == ModelFamily::kKimiLinear;
}

Status ReadListedLayersOfGguf(GgufFields& fields, const GgufFile& gguf, ModelSpec& spec) {
  constexpr std::string_view kHeads = "attention.head_count_kv";
  BATON_ASSIGN_OR_RETURN(const std::vector<int32_t> heads,
                         fields.OfLayers(kHeads, spec.layers.size(), 0, ModelSpec::kMaxHeads));
  BATON_ASSIGN_OR_RETURN(spec.kv_heads, OneSize(fields, kHeads, heads));
  if (spec.kv_heads == 0) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: {} is 0 in all layers; models of this architecture without attention "
                      "are not supported",
                      fields.file(),
                      kHeads);
  }
  for (size_t i = 0; i < heads.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.rotary = false;
    layer.attention = heads[i] > 0;
    layer.state = !layer.attention;
  }
  return spec.family == ModelFamily::kNemotronH ? ReadNetworks(fields, gguf, spec) : OkStatus();
}

Status ReadSelectiveScanOfGguf(GgufFields& fields, const GgufFile& gguf, ModelSpec& spec) {
  RecurrentSpec& recurrent = spec.recurrent;
  RecurrentShape& shape = recurrent.shape;
  shape.rule = RecurrentRule::kSelectiveScan;
  shape.key_dim = fields.Int("ssm.state_size", 1, ModelSpec::kMaxHeadDim);
  shape.kernel = fields.Int("ssm.conv_kernel", 1, kMaxKernel);
  recurrent.latent_rank = fields.Int("ssm.time_step_rank", 1, ModelSpec::kMaxHidden);
  const int32_t inner = fields.Int("ssm.inner_size", 1, ModelSpec::kMaxIntermediate);
  BATON_RETURN_IF_ERROR(fields.status());
  if (inner % spec.kv_heads != 0) {
    return InvalidArgument("{}: ssm.inner_size {} is not a multiple of attention.head_count_kv {}",
                           fields.file(),
                           inner,
                           spec.kv_heads);
  }
  // The channels of a rank are those of its KV heads.
  shape.key_heads = shape.value_heads = spec.kv_heads;
  shape.value_dim = inner / spec.kv_heads;
  recurrent.convolution_bias =
      HasTensorInLayers(gguf, WeightKind::kRecurrentConvolutionBias, spec.layer_count());
  recurrent.norm = false;
  return OkStatus();
}

Status ReadKimiDeltaOfGguf(GgufFields& fields, ModelSpec& spec) {
  RecurrentShape& shape = spec.recurrent.shape;
  shape.rule = RecurrentRule::kChannelDelta;
  shape.key_heads = shape.value_heads = spec.heads;
  shape.key_dim = shape.value_dim = fields.Int("kda.head_dim", 1, ModelSpec::kMaxHeadDim);
  shape.kernel = fields.Int("ssm.conv_kernel", 1, kMaxKernel);
  spec.recurrent.latent_rank = shape.value_dim;
  return fields.status();
}

Status ReadDeltaNetsOfGguf(GgufFields& fields, ModelSpec& spec) {
  constexpr std::string_view kRecurrent = "attention.recurrent_layers";
  const int32_t interval = fields.IntOr("full_attention_interval", 4, 1, kMaxLayers);
  BATON_RETURN_IF_ERROR(ReadShape(fields, RecurrentRule::kDelta, spec.recurrent.shape));
  std::vector<bool> recurrent;
  for (int32_t i = 0; i < spec.layer_count(); ++i) recurrent.push_back((i + 1) % interval != 0);
  if (fields.Has(kRecurrent)) {
    BATON_ASSIGN_OR_RETURN(recurrent, fields.Flags(kRecurrent, spec.layers.size()));
  }
  for (int32_t i = 0; i < spec.layer_count(); ++i) {
    spec.layers[i].state = recurrent[static_cast<size_t>(i)];
    spec.layers[i].attention = !spec.layers[i].state;
  }
  spec.recurrent.inputs_by_kind = true;
  spec.attention_gate = true;
  spec.qk_norm = QkNorm::kHead;
  if (!IsQwen35(spec.family)) return OkStatus();
  spec.recurrent.gates_by_kind = true;
  return TileKeys(fields, spec.recurrent);
}

Status ReadStateSpaceOfGguf(GgufFields& fields, const GgufFile& gguf, ModelSpec& spec) {
  RecurrentSpec& recurrent = spec.recurrent;
  BATON_RETURN_IF_ERROR(ReadShape(fields, RecurrentRule::kStateSpace, recurrent.shape));
  const auto has = [&](WeightKind kind) {
    return HasTensorInLayers(gguf, kind, spec.layer_count());
  };
  recurrent.norm = has(WeightKind::kRecurrentNorm);
  recurrent.convolution_bias = has(WeightKind::kRecurrentConvolutionBias);
  if (spec.family == ModelFamily::kNemotronH) {
    CopyKeyHeads(spec);
    return OkStatus();
  }
  if (spec.family == ModelFamily::kFalconH1) {
    for (LayerSpec& layer : spec.layers) layer.state = true;
    CopyKeyHeads(spec);
    return OkStatus();
  }
  spec.heads = spec.kv_heads = recurrent.shape.key_heads;
  spec.intermediate = 0;
  for (LayerSpec& layer : spec.layers) {
    layer = {.rotary = false, .attention = false, .state = true, .feed_forward = false};
  }
  return OkStatus();
}

}  // namespace baton
