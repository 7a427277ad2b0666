#include "common/model/hf_mamba.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "common/kvcache/layout.h"

namespace baton {
namespace {

constexpr int32_t kMaxKernel = 64;

// The keys of the sizes of Mamba 2 in a family, and the defaults of those that may be absent.
struct StateSpaceKeys {
  std::string_view heads;
  int32_t default_heads;
  std::string_view head_dim;
  int32_t default_head_dim;
  std::string_view groups;
  int32_t default_groups;
  std::string_view state;
  int32_t default_state;
  std::string_view kernel;
  std::string_view convolution_bias;
};

StateSpaceKeys KeysOf(ModelFamily family) {
  switch (family) {
    case ModelFamily::kFalconH1:
      return {"mamba_n_heads",
              128,
              "mamba_d_head",
              64,
              "mamba_n_groups",
              1,
              "mamba_d_state",
              256,
              "mamba_d_conv",
              "mamba_conv_bias"};
    case ModelFamily::kNemotronH:
      return {"mamba_num_heads",
              128,
              "mamba_head_dim",
              64,
              "n_groups",
              8,
              "ssm_state_size",
              128,
              "conv_kernel",
              "use_conv_bias"};
    default:
      return {"num_heads",
              128,
              "head_dim",
              64,
              "n_groups",
              8,
              "state_size",
              128,
              "conv_kernel",
              "use_conv_bias"};
  }
}

// Refuses the keys of biases and other features that no Mamba layer of ours has.
Status RefuseFlags(JsonFields& fields, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (!fields.BoolOr(key, false)) continue;
    return MakeStatus(
        StatusCode::kUnimplemented, "{}: {} is true; only false is supported", fields.file(), key);
  }
  return fields.status();
}

Status RefuseActivation(JsonFields& fields, std::string_view key, std::string_view supported) {
  const std::string found = fields.TextOr(key, supported);
  BATON_RETURN_IF_ERROR(fields.status());
  if (found == supported) return OkStatus();
  return MakeStatus(StatusCode::kUnimplemented,
                    "{}: {} is {}; only {} is supported",
                    fields.file(),
                    key,
                    found,
                    supported);
}

// The sizes of Mamba 2.
Status ReadStateSpace(JsonFields& fields, ModelSpec& spec) {
  const StateSpaceKeys keys = KeysOf(spec.family);
  RecurrentSpec& recurrent = spec.recurrent;
  RecurrentShape& shape = recurrent.shape;
  shape.rule = RecurrentRule::kStateSpace;
  shape.value_heads = fields.IntOr(keys.heads, keys.default_heads, 1, ModelSpec::kMaxHeads);
  shape.value_dim = fields.IntOr(keys.head_dim, keys.default_head_dim, 1, ModelSpec::kMaxHeadDim);
  shape.key_dim = fields.IntOr(keys.state, keys.default_state, 1, ModelSpec::kMaxHeadDim);
  shape.kernel = fields.IntOr(keys.kernel, 4, 1, kMaxKernel);
  shape.key_heads = fields.IntOr(keys.groups, keys.default_groups, 1, ModelSpec::kMaxHeads);
  recurrent.convolution_bias = fields.BoolOr(keys.convolution_bias, true);
  if (fields.Has("time_step_limit")) {
    BATON_ASSIGN_OR_RETURN(
        const std::vector<double> limits,
        fields.Numbers("time_step_limit", 0, std::numeric_limits<double>::infinity()));
    if (limits.size() != 2) {
      return InvalidArgument(
          "{}: time_step_limit has {} numbers; it must have 2", fields.file(), limits.size());
    }
    recurrent.min_time = static_cast<float>(limits[0]);
    recurrent.max_time = static_cast<float>(limits[1]);
  }
  BATON_RETURN_IF_ERROR(fields.status());
  CopyKeyHeads(spec);
  return OkStatus();
}

// Of a list of factors, or 1 each where it is absent.
StatusOr<std::vector<float>> ReadFactors(JsonFields& fields, std::string_view key, size_t count) {
  if (!fields.Has(key)) return std::vector<float>(count, 1.0f);
  BATON_ASSIGN_OR_RETURN(const std::vector<double> numbers,
                         fields.Numbers(key, 1e-6, ModelSpec::kMaxScale));
  if (numbers.size() != count) {
    return InvalidArgument(
        "{}: {} has {} numbers; it must have {}", fields.file(), key, numbers.size(), count);
  }
  return std::vector<float>(numbers.begin(), numbers.end());
}

// Attention and Mamba 2 side by side in each layer, and factors of nearly everything.
Status ReadFalconH1(JsonFields& fields, ModelSpec& spec) {
  BATON_RETURN_IF_ERROR(RefuseFlags(fields, {"mamba_proj_bias", "projectors_bias"}));
  const auto factor = [&fields](std::string_view key) {
    return static_cast<float>(fields.NumberOr(key, 1, 1e-6, ModelSpec::kMaxScale));
  };
  RecurrentSpec& recurrent = spec.recurrent;
  recurrent.norm = fields.BoolOr("mamba_rms_norm", false);
  if (recurrent.norm && fields.BoolOr("mamba_norm_before_gate", true)) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: mamba_norm_before_gate is true; with mamba_rms_norm only false is "
                      "supported",
                      fields.file());
  }
  BATON_RETURN_IF_ERROR(ReadStateSpace(fields, spec));
  const auto inner = static_cast<int32_t>(
      std::min<int64_t>(recurrent.shape.value_numbers(), int64_t{ModelSpec::kMaxIntermediate}));
  if (fields.IntOr("mamba_d_ssm", inner, 1, ModelSpec::kMaxIntermediate) != inner) {
    return InvalidArgument("{}: mamba_d_ssm is not mamba_n_heads {} times mamba_d_head {}",
                           fields.file(),
                           recurrent.shape.value_heads,
                           recurrent.shape.value_dim);
  }
  spec.embedding_scale = factor("embedding_multiplier");
  spec.logit_scale = factor("lm_head_multiplier");
  spec.attention_scale = factor("key_multiplier") / std::sqrt(static_cast<float>(spec.head_dim));
  spec.attention_input_scale = factor("attention_in_multiplier");
  spec.attention_output_scale = factor("attention_out_multiplier");
  recurrent.input_scale = factor("ssm_in_multiplier");
  recurrent.output_scale = factor("ssm_out_multiplier");
  BATON_ASSIGN_OR_RETURN(const auto parts, ReadFactors(fields, "ssm_multipliers", 5));
  recurrent.gate_scale = parts[0];
  recurrent.value_scale = parts[1];
  recurrent.key_scale = parts[2];
  recurrent.query_scale = parts[3];
  recurrent.time_scale = parts[4];
  BATON_ASSIGN_OR_RETURN(const auto mlp, ReadFactors(fields, "mlp_multipliers", 2));
  spec.gate_scale = mlp[0];
  spec.feed_forward_scale = mlp[1];
  for (LayerSpec& layer : spec.layers) layer.state = true;
  return fields.status();
}

// Published files have a letter for each layer, those of transformers 5 a word.
StatusOr<std::string> ReadPattern(JsonFields& fields) {
  const std::string letters = fields.TextOr("hybrid_override_pattern", "");
  BATON_RETURN_IF_ERROR(fields.status());
  if (!letters.empty()) return letters;
  BATON_ASSIGN_OR_RETURN(const auto words, fields.Texts("layers_block_type"));
  std::string pattern;
  for (const std::string& word : words) {
    if (word == "linear_attention" || word == "mamba") {
      pattern += 'M';
    } else if (word == "full_attention" || word == "attention") {
      pattern += '*';
    } else if (word == "mlp") {
      pattern += '-';
    } else if (word == "moe") {
      pattern += 'E';
    } else {
      return MakeStatus(StatusCode::kUnimplemented,
                        "{}: layers_block_type has {}; linear_attention, full_attention, mlp and "
                        "moe are supported",
                        fields.file(),
                        word);
    }
  }
  return pattern;
}

// A layer is Mamba 2 (M), attention (*), a feed-forward network (-) or experts (E).
Status ReadNemotronH(JsonFields& fields, ModelSpec& spec) {
  BATON_RETURN_IF_ERROR(RefuseFlags(fields, {"use_bias", "mamba_proj_bias"}));
  BATON_RETURN_IF_ERROR(RefuseActivation(fields, "mamba_hidden_act", "silu"));
  if (fields.Has("sliding_window")) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: sliding_window is set; only null is supported",
                      fields.file());
  }
  BATON_ASSIGN_OR_RETURN(const std::string pattern, ReadPattern(fields));
  if (pattern.size() != spec.layers.size()) {
    return InvalidArgument("{}: the pattern {} has {} layers, num_hidden_layers is {}",
                           fields.file(),
                           pattern,
                           pattern.size(),
                           spec.layers.size());
  }
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char kind = pattern[i];
    if (std::string_view("M*-E").find(kind) == std::string_view::npos) {
      return MakeStatus(StatusCode::kUnimplemented,
                        "{}: hybrid_override_pattern has {}; M, *, - and E are supported",
                        fields.file(),
                        kind);
    }
    LayerSpec& layer = spec.layers[i];
    layer = {.moe = kind == 'E',
             .rotary = false,
             .attention = kind == '*',
             .state = kind == 'M',
             .feed_forward = kind == '-' || kind == 'E'};
  }
  const bool experts = std::ranges::any_of(spec.layers, &LayerSpec::moe);
  if (experts) BATON_RETURN_IF_ERROR(RefuseFlags(fields, {"mlp_bias"}));
  return spec.state_layers() > 0 ? ReadStateSpace(fields, spec) : fields.status();
}

// Mamba (1) with norms, attention in one layer of each period.
Status ReadJamba(JsonFields& fields, ModelSpec& spec) {
  BATON_RETURN_IF_ERROR(RefuseFlags(fields, {"mamba_proj_bias"}));
  if (fields.Has("sliding_window")) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: sliding_window is set; only null is supported",
                      fields.file());
  }
  const int32_t expand = fields.IntOr("mamba_expand", 2, 1, 64);
  RecurrentSpec& recurrent = spec.recurrent;
  RecurrentShape& shape = recurrent.shape;
  shape.rule = RecurrentRule::kSelectiveScan;
  shape.key_dim = fields.IntOr("mamba_d_state", 16, 1, ModelSpec::kMaxHeadDim);
  shape.kernel = fields.IntOr("mamba_d_conv", 4, 1, kMaxKernel);
  recurrent.convolution_bias = fields.BoolOr("mamba_conv_bias", true);
  const int32_t automatic = (spec.hidden + 15) / 16;
  const bool is_automatic = fields.IsText("mamba_dt_rank", "auto");
  recurrent.latent_rank =
      is_automatic ? automatic : fields.IntOr("mamba_dt_rank", automatic, 1, ModelSpec::kMaxHidden);
  recurrent.norm = false;
  const int32_t period = fields.IntOr("attn_layer_period", 8, 1, kMaxLayers);
  const int32_t offset = fields.IntOr("attn_layer_offset", 4, 0, kMaxLayers);
  BATON_RETURN_IF_ERROR(fields.status());
  const int64_t inner = int64_t{expand} * spec.hidden;
  if (inner % spec.kv_heads != 0) {
    return InvalidArgument(
        "{}: mamba_expand {} times hidden_size {} is not a multiple of num_key_value_heads {}",
        fields.file(),
        expand,
        spec.hidden,
        spec.kv_heads);
  }
  // The channels of a rank are those of its KV heads.
  shape.key_heads = shape.value_heads = spec.kv_heads;
  shape.value_dim = static_cast<int32_t>(inner / spec.kv_heads);
  const int32_t experts_period = fields.IntOr("expert_layer_period", 2, 1, kMaxLayers);
  const int32_t experts_offset = fields.IntOr("expert_layer_offset", 1, 0, kMaxLayers);
  const bool experts = fields.IntOr("num_experts", 16, 1, ModelSpec::kMaxExperts) > 1;
  for (int32_t i = 0; i < spec.layer_count(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.rotary = false;
    layer.attention = i % period == offset;
    layer.state = !layer.attention;
    layer.moe = experts && i % experts_period == experts_offset;
  }
  return fields.status();
}

// Mamba 2 in each layer, and nothing else.
Status ReadMamba2(JsonFields& fields, ModelSpec& spec) {
  BATON_RETURN_IF_ERROR(RefuseFlags(fields, {"use_bias"}));
  BATON_RETURN_IF_ERROR(ReadStateSpace(fields, spec));
  const RecurrentShape& shape = spec.recurrent.shape;
  const int64_t inner = int64_t{fields.IntOr("expand", 2, 1, 64)} * spec.hidden;
  if (fields.status().ok() && inner != shape.value_numbers()) {
    return InvalidArgument("{}: num_heads {} times head_dim {} is not expand times hidden_size {}",
                           fields.file(),
                           shape.value_heads,
                           shape.value_dim,
                           spec.hidden);
  }
  // What ranks divide in place of KV heads.
  spec.heads = spec.kv_heads = shape.key_heads;
  for (LayerSpec& layer : spec.layers) {
    layer = {.rotary = false, .attention = false, .state = true, .feed_forward = false};
  }
  return fields.status();
}

}  // namespace

void CopyKeyHeads(ModelSpec& spec) {
  RecurrentShape& shape = spec.recurrent.shape;
  if (spec.recurrent.norm || spec.kv_heads % shape.key_heads != 0) return;
  shape.key_copies = spec.kv_heads / shape.key_heads;
  shape.key_heads = spec.kv_heads;
}

bool HasMamba(ModelFamily family) {
  switch (family) {
    case ModelFamily::kNemotronH:
    case ModelFamily::kFalconH1:
    case ModelFamily::kMamba2:
    case ModelFamily::kJamba:
      return true;
    default:
      return false;
  }
}

int32_t ReadLayerCount(JsonFields& fields, ModelFamily family) {
  if (family != ModelFamily::kNemotronH || fields.Has("num_hidden_layers")) {
    return fields.Int("num_hidden_layers", 1, kMaxLayers);
  }
  const StatusOr<std::string> pattern = ReadPattern(fields);
  if (!pattern.ok()) {
    fields.Fail(pattern.status());
    return 1;
  }
  const auto count = static_cast<int64_t>(pattern->size());
  if (count < 1 || count > kMaxLayers) {
    fields.Fail(InvalidArgument("{}: layers_block_type has {} layers; it must have 1 to {}",
                                fields.file(),
                                count,
                                kMaxLayers));
  }
  return static_cast<int32_t>(std::clamp<int64_t>(count, 1, kMaxLayers));
}

Status ReadMamba(JsonFields& fields, ModelSpec& spec) {
  switch (spec.family) {
    case ModelFamily::kNemotronH:
      return ReadNemotronH(fields, spec);
    case ModelFamily::kFalconH1:
      return ReadFalconH1(fields, spec);
    case ModelFamily::kJamba:
      return ReadJamba(fields, spec);
    default:
      return ReadMamba2(fields, spec);
  }
}

}  // namespace baton
