#include "common/model/hf_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>

#include "common/base/mapped_file.h"
#include "common/kvcache/layout.h"
#include "common/model/config_fields.h"

namespace baton {
namespace {

constexpr size_t kMaxConfigBytes = size_t{4} << 20;
constexpr int32_t kMaxContext = ModelSpec::kMaxContext;

struct FamilyName {
  std::string_view architecture;
  ModelFamily family;
};

constexpr FamilyName kFamilies[] = {
    {"LlamaForCausalLM", ModelFamily::kLlama},
    {"MistralForCausalLM", ModelFamily::kMistral},
    {"MixtralForCausalLM", ModelFamily::kMixtral},
    {"Qwen2ForCausalLM", ModelFamily::kQwen2},
    {"Qwen3ForCausalLM", ModelFamily::kQwen3},
    {"Qwen3MoeForCausalLM", ModelFamily::kQwen3Moe},
    {"Glm4ForCausalLM", ModelFamily::kGlm4},
};

// Uses `architectures`, or `model_type` when the config has no architectures.
StatusOr<ModelFamily> ReadFamily(JsonFields& fields) {
  std::string found = fmt::format("model_type {}", fields.TextOr("model_type", "(none)"));
  if (fields.Has("architectures")) {
    BATON_ASSIGN_OR_RETURN(const std::vector<std::string> names, fields.Texts("architectures"));
    for (const FamilyName& row : kFamilies) {
      if (!names.empty() && names.front() == row.architecture) return row.family;
    }
    found = fmt::format("architecture {}", names.empty() ? "(none)" : names.front());
  } else {
    for (const FamilyName& row : kFamilies) {
      if (fields.TextOr("model_type", "") == Name(row.family)) return row.family;
    }
  }
  BATON_RETURN_IF_ERROR(fields.status());
  std::string supported;
  for (const FamilyName& row : kFamilies) supported += fmt::format(" {}", row.architecture);
  return MakeStatus(StatusCode::kUnimplemented,
                    "{}: {} is not supported; supported are{}",
                    fields.file(),
                    found,
                    supported);
}

Status RefuseWhatWeLack(JsonFields& fields) {
  const std::string activation = fields.TextOr("hidden_act", "silu");
  BATON_RETURN_IF_ERROR(fields.status());
  if (activation != "silu") {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: hidden_act is {}; only silu is supported",
                      fields.file(),
                      activation);
  }
  constexpr std::string_view kUnsupported[] = {
      "quantization_config", "shared_expert_intermediate_size", "num_shared_experts"};
  for (const std::string_view key : kUnsupported) {
    if (fields.Has(key)) {
      return MakeStatus(StatusCode::kUnimplemented, "{}: {} is not supported", fields.file(), key);
    }
  }
  return OkStatus();
}

// arXiv:2309.00071, with DeepSeek's `mscale` and `mscale_all_dim` when the config has them.
double YarnAttentionFactor(JsonFields& rope, double factor) {
  if (rope.Has("attention_factor")) return rope.Number("attention_factor", 1e-3, 1e3);
  const auto magnitude = [factor](double scale) {
    return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
  };
  if (rope.Has("mscale") && rope.Has("mscale_all_dim")) {
    return magnitude(rope.Number("mscale", 1e-3, 1e3)) /
           magnitude(rope.Number("mscale_all_dim", 1e-3, 1e3));
  }
  return magnitude(1.0);
}

// `rope` holds the scaling keys: rope_parameters, or the older rope_scaling.
Status ReadScaling(JsonFields& rope, ModelSpec& spec) {
  RopeSpec& to = spec.rope;
  const std::string kind = rope.TextOr("rope_type", rope.TextOr("type", "default"));
  BATON_RETURN_IF_ERROR(rope.status());
  if (kind == "default") return OkStatus();
  const int32_t trained = spec.context_length;
  if (kind == "linear") {
    to.scaling = RopeScaling::kLinear;
    to.factor = rope.Number("factor", 1, 1e6);
    spec.context_length =
        static_cast<int32_t>(std::min<double>(kMaxContext, spec.context_length * to.factor));
  } else if (kind == "llama3") {
    to.scaling = RopeScaling::kLlama3;
    to.factor = rope.Number("factor", 1, 1e6);
    to.low_frequency_factor = rope.Number("low_freq_factor", 1e-6, 1e6);
    to.high_frequency_factor = rope.Number("high_freq_factor", 1e-6, 1e6);
    to.original_context = rope.Int("original_max_position_embeddings", 1, kMaxContext);
  } else if (kind == "yarn") {
    to.scaling = RopeScaling::kYarn;
    to.original_context = rope.IntOr("original_max_position_embeddings", trained, 1, kMaxContext);
    const double ratio = std::max(1.0, static_cast<double>(trained) / to.original_context);
    to.factor = rope.NumberOr("factor", ratio, 1, 1e6);
    to.beta_fast = rope.NumberOr("beta_fast", to.beta_fast, 1e-6, 1e6);
    to.beta_slow = rope.NumberOr("beta_slow", to.beta_slow, 1e-6, 1e6);
    to.attention_factor = YarnAttentionFactor(rope, to.factor);
    to.truncate = rope.BoolOr("truncate", true);
    const double stretched = to.original_context * to.factor;
    spec.context_length =
        static_cast<int32_t>(std::min<double>(kMaxContext, std::max<double>(trained, stretched)));
  } else {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: rope_type {} is not supported; default, linear, llama3 and yarn are",
                      rope.file(),
                      kind);
  }
  return rope.status();
}

Status ReadRope(JsonFields& fields, ModelSpec& spec) {
  const double default_theta = spec.family == ModelFamily::kMixtral ? 1e6 : 1e4;
  spec.rope.theta = fields.NumberOr("rope_theta", default_theta, 1, 1e12);
  const bool glm4 = spec.family == ModelFamily::kGlm4;
  if (glm4) spec.rope.pairing = RopePairing::kAdjacent;
  double rotated = fields.NumberOr("partial_rotary_factor", glm4 ? 0.5 : 1, 0, 1);
  const bool current = fields.Has("rope_parameters");
  if (current || fields.Has("rope_scaling")) {
    BATON_ASSIGN_OR_RETURN(const auto rope,
                           fields.Object(current ? "rope_parameters" : "rope_scaling"));
    spec.rope.theta = rope->NumberOr("rope_theta", spec.rope.theta, 1, 1e12);
    rotated = rope->NumberOr("partial_rotary_factor", rotated, 0, 1);
    BATON_RETURN_IF_ERROR(ReadScaling(*rope, spec));
  }
  spec.rope.rotary_dim = static_cast<int32_t>(spec.head_dim * rotated);
  return fields.status();
}

// The rules of transformers: Mistral, Mixtral and Qwen 3 MoE have the window in every layer, Qwen 2
// and 3 from layer max_window_layers on. layer_types overrides both when it is present.
Status ReadWindows(JsonFields& fields, ModelSpec& spec) {
  const bool mistral = spec.family == ModelFamily::kMistral || spec.family == ModelFamily::kMixtral;
  const bool qwen = spec.family == ModelFamily::kQwen2 || spec.family == ModelFamily::kQwen3 ||
                    spec.family == ModelFamily::kQwen3Moe;
  int32_t window = 0;
  if (mistral) window = fields.IntOr("sliding_window", 0, 1, kMaxContext);
  if (qwen && fields.BoolOr("use_sliding_window", false)) {
    window = fields.IntOr("sliding_window", 4096, 1, kMaxContext);
  }
  int32_t first = 0;
  if (spec.family == ModelFamily::kQwen2 || spec.family == ModelFamily::kQwen3) {
    first = fields.IntOr("max_window_layers", 28, 0, kMaxLayers);
  }
  for (int32_t i = first; i < spec.layer_count(); ++i) spec.layers[i].window = window;

  if (!fields.Has("layer_types")) return fields.status();
  BATON_ASSIGN_OR_RETURN(const std::vector<std::string> types, fields.Texts("layer_types"));
  if (types.size() != spec.layers.size()) {
    return InvalidArgument("{}: layer_types has {} entries for {} layers",
                           fields.file(),
                           types.size(),
                           spec.layers.size());
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "full_attention" && types[i] != "sliding_attention") {
      return MakeStatus(StatusCode::kUnimplemented,
                        "{}: layer_types has {}; full_attention and sliding_attention are "
                        "supported",
                        fields.file(),
                        types[i]);
    }
    if (types[i] == "sliding_attention" && window == 0) {
      return InvalidArgument(
          "{}: layer {} is sliding_attention, but no sliding_window is set", fields.file(), i);
    }
    spec.layers[i].window = types[i] == "sliding_attention" ? window : 0;
  }
  return fields.status();
}

Status ReadMoe(JsonFields& fields, ModelSpec& spec) {
  // transformers 5 writes num_local_experts; published Qwen checkpoints have num_experts.
  const std::string_view experts = fields.Has("num_experts") ? "num_experts" : "num_local_experts";
  spec.moe.experts = fields.Int(experts, 1, ModelSpec::kMaxExperts);
  spec.moe.experts_per_token = fields.Int("num_experts_per_tok", 1, ModelSpec::kMaxExperts);
  if (spec.family == ModelFamily::kMixtral) {
    spec.moe.intermediate = std::exchange(spec.intermediate, 0);
    for (LayerSpec& layer : spec.layers) layer.moe = true;
    return fields.status();
  }
  spec.moe.intermediate = fields.Int("moe_intermediate_size", 1, ModelSpec::kMaxIntermediate);
  spec.moe.normalize = fields.BoolOr("norm_topk_prob", false);
  const int32_t step = fields.IntOr("decoder_sparse_step", 1, 1, kMaxLayers);
  const std::vector<int32_t> dense = fields.IntsOr("mlp_only_layers", 0, kMaxLayers);
  for (int32_t i = 0; i < spec.layer_count(); ++i) {
    const bool listed = std::find(dense.begin(), dense.end(), i) != dense.end();
    spec.layers[i].moe = !listed && (i + 1) % step == 0;
  }
  return fields.status();
}

void AddEndTokens(ConfigFields& fields, ModelSpec& spec) {
  for (const int32_t token : fields.IntsOr("eos_token_id", 0, ModelSpec::kMaxVocabulary)) {
    if (std::find(spec.eos.begin(), spec.eos.end(), token) == spec.eos.end()) {
      spec.eos.push_back(token);
    }
  }
}

StatusOr<ModelSpec> ReadConfig(JsonFields& fields) {
  ModelSpec spec;
  BATON_ASSIGN_OR_RETURN(spec.family, ReadFamily(fields));
  BATON_RETURN_IF_ERROR(RefuseWhatWeLack(fields));
  spec.hidden = fields.Int("hidden_size", 1, ModelSpec::kMaxHidden);
  spec.heads = fields.Int("num_attention_heads", 1, ModelSpec::kMaxHeads);
  spec.kv_heads = fields.IntOr("num_key_value_heads", spec.heads, 1, ModelSpec::kMaxHeads);
  BATON_RETURN_IF_ERROR(fields.status());
  if (!fields.Has("head_dim") && spec.family != ModelFamily::kGlm4 &&
      spec.hidden % spec.heads != 0) {
    return InvalidArgument("{}: hidden_size {} is not a multiple of num_attention_heads {}",
                           fields.file(),
                           spec.hidden,
                           spec.heads);
  }
  const bool mixtral = spec.family == ModelFamily::kMixtral;
  const bool glm4 = spec.family == ModelFamily::kGlm4;
  spec.head_dim =
      fields.IntOr("head_dim", glm4 ? 128 : spec.hidden / spec.heads, 1, ModelSpec::kMaxHeadDim);
  spec.intermediate = fields.Int("intermediate_size", 1, ModelSpec::kMaxIntermediate);
  spec.vocab = fields.Int("vocab_size", 1, ModelSpec::kMaxVocabulary);
  spec.context_length = fields.Int("max_position_embeddings", 1, kMaxContext);
  const double epsilon = mixtral ? 1e-5 : glm4 ? 1.5625e-7 : 1e-6;
  spec.norm_epsilon = static_cast<float>(fields.NumberOr("rms_norm_eps", epsilon, 0, 1));
  spec.tied_head = fields.BoolOr("tie_word_embeddings", false);
  spec.layers.resize(fields.Int("num_hidden_layers", 1, kMaxLayers));

  const bool qwen3 = spec.family == ModelFamily::kQwen3 || spec.family == ModelFamily::kQwen3Moe;
  const bool attention_bias = fields.BoolOr("attention_bias", false);
  const bool may_have_bias = qwen3 || spec.family == ModelFamily::kLlama;
  spec.qk_norm = qwen3;
  spec.qkv_bias = spec.family == ModelFamily::kQwen2 || ((may_have_bias || glm4) && attention_bias);
  spec.o_bias = may_have_bias && attention_bias;
  spec.post_norms = glm4;
  spec.mlp_bias = spec.family == ModelFamily::kLlama && fields.BoolOr("mlp_bias", false);
  if (fields.Has("bos_token_id"))
    spec.bos = fields.Int("bos_token_id", 0, ModelSpec::kMaxVocabulary);
  AddEndTokens(fields, spec);
  BATON_RETURN_IF_ERROR(fields.status());
  BATON_RETURN_IF_ERROR(ReadRope(fields, spec));
  BATON_RETURN_IF_ERROR(ReadWindows(fields, spec));
  if (mixtral || spec.family == ModelFamily::kQwen3Moe) {
    BATON_RETURN_IF_ERROR(ReadMoe(fields, spec));
  }
  return spec;
}

StatusOr<std::unique_ptr<JsonFields>> ReadJson(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  return JsonFields::Parse(path, text);
}

}  // namespace

StatusOr<ModelSpec> SpecFromHfDirectory(const std::string& directory) {
  const std::string path = directory + "/config.json";
  BATON_ASSIGN_OR_RETURN(const auto config, ReadJson(path));
  BATON_ASSIGN_OR_RETURN(ModelSpec spec, ReadConfig(*config));
  const std::string generation_path = directory + "/generation_config.json";
  std::error_code ignored;
  if (std::filesystem::exists(generation_path, ignored)) {
    BATON_ASSIGN_OR_RETURN(const auto generation, ReadJson(generation_path));
    AddEndTokens(*generation, spec);
    BATON_RETURN_IF_ERROR(generation->status());
  }
  BATON_RETURN_IF_ERROR(spec.Validate(path));
  return spec;
}

}  // namespace baton
