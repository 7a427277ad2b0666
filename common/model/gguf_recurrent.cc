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

// The sizes that both kinds of recurrent layers have under the same keys.
Status ReadShape(GgufFields& fields, RecurrentRule rule, RecurrentShape& shape) {
  constexpr int32_t kMaxKernel = 64;
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

}  // namespace

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
  return OkStatus();
}

Status ReadStateSpaceOfGguf(GgufFields& fields, const GgufFile& gguf, ModelSpec& spec) {
  RecurrentSpec& recurrent = spec.recurrent;
  BATON_RETURN_IF_ERROR(ReadShape(fields, RecurrentRule::kStateSpace, recurrent.shape));
  recurrent.norm = HasTensor(gguf, WeightKind::kRecurrentNorm, 0);
  recurrent.convolution_bias = HasTensor(gguf, WeightKind::kRecurrentConvolutionBias, 0);
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
