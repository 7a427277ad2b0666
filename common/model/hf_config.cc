#include "common/model/hf_config.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>

#include "common/kvcache/layout.h"
#include "common/model/config_fields.h"
#include "common/model/config_file.h"
#include "common/model/hf_delta_net.h"
#include "common/model/hf_experts.h"
#include "common/model/hf_families.h"
#include "common/model/hf_kimi.h"
#include "common/model/hf_latent.h"
#include "common/model/hf_llama4.h"
#include "common/model/hf_mamba.h"
#include "common/model/hf_rope.h"
#include "common/model/quantization_config.h"

namespace baton {
namespace {

constexpr int32_t kMaxContext = ModelSpec::kMaxContext;

// Names the family that the configuration states, and one that is like it.
Status RefuseFamily(std::string_view kind, std::string_view name, const std::string& file) {
  std::string supported;
  for (const HfFamily& row : HfFamilies()) supported += fmt::format(" {}", row.architecture);
  const HfFamily* const nearest = NearestFamily(name);
  return MakeStatus(
      StatusCode::kUnimplemented,
      "{}: {} {} is not supported{}; supported are{}",
      file,
      kind,
      name.empty() ? "(none)" : name,
      nearest == nullptr ? "" : fmt::format("; the nearest is {}", nearest->architecture),
      supported);
}

// Uses `architectures`, or `model_type` when the config has no architectures.
StatusOr<HfFamily> ReadFamily(JsonFields& fields) {
  if (fields.Has("architectures")) {
    BATON_ASSIGN_OR_RETURN(const std::vector<std::string> names, fields.Texts("architectures"));
    const std::string name = names.empty() ? "" : names.front();
    for (const HfFamily& row : HfFamilies()) {
      if (name == row.architecture) return row;
    }
    return RefuseFamily("architecture", name, fields.file());
  }
  const std::string type = fields.TextOr("model_type", "");
  BATON_RETURN_IF_ERROR(fields.status());
  for (const HfFamily& row : HfFamilies()) {
    if (type == Name(row.family)) return row;
  }
  return RefuseFamily("model_type", type, fields.file());
}

StatusOr<FeedForward> ReadGemmaFeedForward(JsonFields& fields) {
  constexpr std::string_view kGelu = "gelu_pytorch_tanh";
  const std::string activation = fields.TextOr("hidden_activation", kGelu);
  BATON_RETURN_IF_ERROR(fields.status());
  if (activation == kGelu) return FeedForward::kGeluTanhGated;
  return MakeStatus(StatusCode::kUnimplemented,
                    "{}: hidden_activation is {}; only {} is supported",
                    fields.file(),
                    activation,
                    kGelu);
}

StatusOr<FeedForward> ReadSquaredRelu(JsonFields& fields) {
  const std::string activation = fields.TextOr("mlp_hidden_act", "relu2");
  BATON_RETURN_IF_ERROR(fields.status());
  if (activation == "relu2") return FeedForward::kSquaredRelu;
  return MakeStatus(StatusCode::kUnimplemented,
                    "{}: mlp_hidden_act is {}; only relu2 is supported",
                    fields.file(),
                    activation);
}

// The activation of the feed-forward network.
StatusOr<FeedForward> ReadFeedForward(ModelFamily family, JsonFields& fields) {
  if (IsGemma(family)) return ReadGemmaFeedForward(fields);
  if (family == ModelFamily::kNemotronH) return ReadSquaredRelu(fields);
  const bool gated = family != ModelFamily::kPhi && family != ModelFamily::kGptNeox;
  const std::string_view usual = gated ? "silu" : family == ModelFamily::kPhi ? "gelu_new" : "gelu";
  const std::string activation = fields.TextOr("hidden_act", usual);
  BATON_RETURN_IF_ERROR(fields.status());
  if (gated && activation == "silu") return FeedForward::kSiluGated;
  if (!gated && activation == "gelu") return FeedForward::kGelu;
  for (const std::string_view approximate : {"gelu_new", "gelu_fast", "gelu_pytorch_tanh"}) {
    if (!gated && activation == approximate) return FeedForward::kGeluTanh;
  }
  return MakeStatus(StatusCode::kUnimplemented,
                    "{}: hidden_act is {}; only {} supported",
                    fields.file(),
                    activation,
                    gated ? "silu is" : "gelu, gelu_new, gelu_fast and gelu_pytorch_tanh are");
}

Status RefuseOfGemma(ModelFamily family, JsonFields& fields) {
  for (const std::string_view key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (family == ModelFamily::kGemma2 || !fields.Has(key)) continue;
    return MakeStatus(
        StatusCode::kUnimplemented, "{}: {} is set; only null is supported", fields.file(), key);
  }
  if (!fields.BoolOr("use_bidirectional_attention", false)) return fields.status();
  return MakeStatus(StatusCode::kUnimplemented,
                    "{}: use_bidirectional_attention is true; only false is supported",
                    fields.file());
}

// Features that no family of ours may have, or not in this way.
Status RefuseWhatWeLack(ModelFamily family, JsonFields& fields) {
  for (const std::string_view key : {"shared_expert_intermediate_size", "num_shared_experts"}) {
    const bool shared = key == "shared_expert_intermediate_size";
    const bool has_shared = family == ModelFamily::kQwen2Moe || family == ModelFamily::kQwen3Next ||
                            family == ModelFamily::kQwen35Moe;
    const bool kimi = family == ModelFamily::kKimiLinear && key == "num_shared_experts";
    if (!fields.Has(key) || (shared && has_shared) || kimi) continue;
    return MakeStatus(StatusCode::kUnimplemented, "{}: {} is not supported", fields.file(), key);
  }
  if (IsGemma(family)) BATON_RETURN_IF_ERROR(RefuseOfGemma(family, fields));
  const bool layer_norms = family == ModelFamily::kPhi || family == ModelFamily::kStableLm;
  if (layer_norms && fields.BoolOr("qk_layernorm", false)) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: qk_layernorm is true; only false is supported",
                      fields.file());
  }
  if (family != ModelFamily::kMiniMaxM2) return fields.status();
  const std::string norms = fields.TextOr("qk_norm_type", "per_layer");
  if (norms == "per_layer" && fields.BoolOr("use_qk_norm", true)) return fields.status();
  BATON_RETURN_IF_ERROR(fields.status());
  return MakeStatus(StatusCode::kUnimplemented,
                    "{}: qk_norm_type is {}, with use_qk_norm {}; only per_layer with true is "
                    "supported",
                    fields.file(),
                    norms,
                    fields.BoolOr("use_qk_norm", true));
}

bool ReadBias(const BiasKey& bias, JsonFields& fields) {
  return bias.key.empty() ? bias.value : fields.BoolOr(bias.key, bias.value);
}

// The blocks whose form the configuration decides.
Status ReadBlocks(const HfFamily& family, JsonFields& fields, ModelSpec& spec) {
  spec.norm = family.norm;
  spec.residual = family.residual;
  spec.qk_norm = family.qk_norm;
  spec.qkv_bias = ReadBias(family.qkv_bias, fields);
  spec.o_bias = ReadBias(family.o_bias, fields);
  spec.mlp_bias = ReadBias(family.mlp_bias, fields);
  spec.head_bias = ReadBias(family.head_bias, fields);
  spec.attention_sinks = family.attention_sinks;
  switch (family.family) {
    case ModelFamily::kGlm4Moe:
      if (fields.BoolOr("use_qk_norm", false)) spec.qk_norm = QkNorm::kHead;
      break;
    case ModelFamily::kCohere:
      if (fields.BoolOr("use_qk_norm", false)) spec.qk_norm = QkNorm::kHeadLayer;
      break;
    case ModelFamily::kLlama4:
      if (!fields.BoolOr("use_qk_norm", true)) spec.qk_norm = QkNorm::kNone;
      break;
    case ModelFamily::kStableLm:
      if (fields.BoolOr("use_parallel_residual", false)) spec.residual = ResidualForm::kParallel;
      break;
    case ModelFamily::kGptNeox:
      if (!fields.BoolOr("use_parallel_residual", true)) spec.residual = ResidualForm::kPreNorm;
      break;
    default:
      break;
  }
  return fields.status();
}

// √hidden in the type of the weights, as which the reference implementation multiplies it.
float EmbeddingScaleOfGemma(JsonFields& fields, int32_t hidden) {
  const auto scale = static_cast<float>(std::sqrt(static_cast<double>(hidden)));
  const std::string type = fields.TextOr("dtype", fields.TextOr("torch_dtype", "bfloat16"));
  if (type != "bfloat16") return scale;
  // Rounds to the nearest number with 8 significant bits; the even one of two.
  const auto bits = std::bit_cast<uint32_t>(scale);
  return std::bit_cast<float>((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u);
}

// The factors of Granite, Cohere and Gemma.
Status ReadScales(JsonFields& fields, ModelSpec& spec) {
  constexpr double kLeast = 1e-6;
  const auto scale = [&fields](std::string_view key, double fallback) {
    return static_cast<float>(fields.NumberOr(key, fallback, kLeast, ModelSpec::kMaxScale));
  };
  if (spec.family == ModelFamily::kGranite || spec.family == ModelFamily::kGraniteMoe) {
    spec.embedding_scale = scale("embedding_multiplier", 1);
    spec.residual_scale = scale("residual_multiplier", 1);
    spec.attention_scale = scale("attention_multiplier", 1);
    spec.logit_scale = 1 / scale("logits_scaling", 1);
  } else if (spec.family == ModelFamily::kCohere || spec.family == ModelFamily::kCohere2) {
    spec.logit_scale = scale("logit_scale", 0.0625);
  } else if (IsGemma(spec.family)) {
    spec.embedding_scale = EmbeddingScaleOfGemma(fields, spec.hidden);
    spec.attention_scale = 1 / std::sqrt(scale("query_pre_attn_scalar", 256));
  }
  if (spec.family == ModelFamily::kGemma2) {
    const auto cap = [&](std::string_view key, double fallback) {
      return fields.IsNull(key) ? 0 : scale(key, fallback);
    };
    spec.attention_cap = cap("attn_logit_softcapping", 50);
    spec.logit_cap = cap("final_logit_softcapping", 30);
  }
  return fields.status();
}

// The sliding window of the family's rules; 0: none.
int32_t ReadWindow(JsonFields& fields, ModelFamily family) {
  const auto window = [&fields](int32_t fallback) {
    if (fields.IsNull("sliding_window")) return 0;
    return fields.IntOr("sliding_window", fallback, 1, kMaxContext);
  };
  switch (family) {
    case ModelFamily::kMistral:
    case ModelFamily::kMixtral:
    case ModelFamily::kPhi3:
      return window(0);
    case ModelFamily::kDots1:
    case ModelFamily::kExaone4:
    case ModelFamily::kOlmo3:
    case ModelFamily::kCohere2:
    case ModelFamily::kGemma2:
    case ModelFamily::kGemma3:
      return window(4096);
    case ModelFamily::kGptOss:
      return window(128);
    case ModelFamily::kQwen2:
    case ModelFamily::kQwen3:
    case ModelFamily::kQwen2Moe:
    case ModelFamily::kQwen3Moe:
    case ModelFamily::kSmolLm3:
      return fields.BoolOr("use_sliding_window", false) ? window(4096) : 0;
    default:
      return 0;
  }
}

// The first layer with the window, for the families that state it.
int32_t ReadFirstWindow(JsonFields& fields, ModelFamily family) {
  const bool states = family == ModelFamily::kQwen2 || family == ModelFamily::kQwen3 ||
                      family == ModelFamily::kQwen2Moe || family == ModelFamily::kDots1;
  if (!states) return 0;
  return fields.IntOr("max_window_layers", family == ModelFamily::kDots1 ? 62 : 28, 0, kMaxLayers);
}

// Of the families in which each layer of a number has no window, that number; 0: no such rule.
int32_t ReadWindowPattern(JsonFields& fields, ModelFamily family) {
  switch (family) {
    case ModelFamily::kOlmo3:
      return 4;
    case ModelFamily::kExaone4:
    case ModelFamily::kCohere2:
      return fields.IntOr("sliding_window_pattern", 4, 1, kMaxLayers);
    case ModelFamily::kGemma3:
      return fields.IntOr("sliding_window_pattern", 6, 1, kMaxLayers);
    case ModelFamily::kGptOss:
    case ModelFamily::kGemma2:
      return 2;
    default:
      return 0;
  }
}

// The rules of transformers: Mistral, Mixtral, Phi-3 and Qwen 3 MoE have the window in every layer,
// other Qwen models and dots.llm1 from layer max_window_layers on, EXAONE 4, OLMo 3 and Cohere 2 in
// all but each fourth layer, Gemma 3 in all but each sixth, gpt-oss and Gemma 2 in each other layer
// from the first one on. layer_types overrides the rule when it is present.
Status ReadWindows(JsonFields& fields, ModelSpec& spec) {
  const int32_t window = ReadWindow(fields, spec.family);
  const int32_t pattern = window > 0 ? ReadWindowPattern(fields, spec.family) : 0;
  for (int32_t i = ReadFirstWindow(fields, spec.family); i < spec.layer_count(); ++i) {
    if (pattern == 0 || (i + 1) % pattern != 0) spec.layers[i].window = window;
  }

  if (!fields.Has("layer_types")) return fields.status();
  BATON_ASSIGN_OR_RETURN(
      const std::vector<bool> slides,
      fields.LayersOfKind(
          "layer_types", spec.layers.size(), "sliding_attention", "full_attention"));
  for (size_t i = 0; i < slides.size(); ++i) {
    if (slides[i] && window == 0) {
      return InvalidArgument(
          "{}: layer {} is sliding_attention, but no sliding_window is set", fields.file(), i);
    }
    spec.layers[i].window = slides[i] ? window : 0;
  }
  return fields.status();
}

// Which layers rotate q and k. Those of SmolLM3 that do not, have the sliding window, if any; those
// of EXAONE 4 that have no window do not, if others have one; those of Cohere 2 that have none do
// not.
Status ReadRotaryLayers(JsonFields& fields, ModelSpec& spec) {
  const bool cohere = spec.family == ModelFamily::kCohere2;
  if (cohere || spec.family == ModelFamily::kExaone4) {
    const bool windows =
        std::ranges::any_of(spec.layers, [](const LayerSpec& layer) { return layer.window > 0; });
    for (LayerSpec& layer : spec.layers) layer.rotary = (!windows && !cohere) || layer.window > 0;
  }
  const bool llama4 = spec.family == ModelFamily::kLlama4;
  if (!llama4 && spec.family != ModelFamily::kSmolLm3) return fields.status();
  const int32_t interval = fields.IntOr("no_rope_layer_interval", 4, 1, kMaxLayers);
  std::vector<int32_t> rotated = fields.IntsOr("no_rope_layers", 0, 1);
  BATON_RETURN_IF_ERROR(fields.status());
  // An empty list of Llama 4 states nothing.
  if (!fields.Has("no_rope_layers") || (llama4 && rotated.empty())) {
    for (int32_t i = 0; i < spec.layer_count(); ++i) rotated.push_back((i + 1) % interval != 0);
  }
  if (rotated.size() != spec.layers.size()) {
    return InvalidArgument("{}: no_rope_layers has {} entries for {} layers",
                           fields.file(),
                           rotated.size(),
                           spec.layers.size());
  }
  for (size_t i = 0; i < rotated.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.rotary = rotated[i] == 1;
    if (layer.rotary && !fields.Has("layer_types")) layer.window = 0;
  }
  return OkStatus();
}

void AddEndTokens(ConfigFields& fields, ModelSpec& spec) {
  for (const int32_t token : fields.IntsOr("eos_token_id", 0, ModelSpec::kMaxVocabulary)) {
    if (std::find(spec.eos.begin(), spec.eos.end(), token) == spec.eos.end()) {
      spec.eos.push_back(token);
    }
  }
}

// The sizes of attention.
Status ReadHeads(const HfFamily& family, JsonFields& fields, ModelSpec& spec) {
  spec.heads = fields.Int("num_attention_heads", 1, ModelSpec::kMaxHeads);
  constexpr std::string_view kKvHeads = "num_key_value_heads";
  const bool usual = family.kv_heads > 0 && !fields.IsNull(kKvHeads);
  spec.kv_heads =
      fields.IntOr(kKvHeads, usual ? family.kv_heads : spec.heads, 1, ModelSpec::kMaxHeads);
  BATON_RETURN_IF_ERROR(fields.status());
  if (!fields.Has("head_dim") && family.head_dim == 0 && spec.hidden % spec.heads != 0) {
    return InvalidArgument("{}: hidden_size {} is not a multiple of num_attention_heads {}",
                           fields.file(),
                           spec.hidden,
                           spec.heads);
  }
  spec.head_dim = fields.IntOr("head_dim",
                               family.head_dim > 0 ? family.head_dim : spec.hidden / spec.heads,
                               1,
                               ModelSpec::kMaxHeadDim);
  return fields.status();
}

// The sizes of the model. Mamba 2 has layers of one kind, and no positions that could end.
Status ReadSizes(const HfFamily& family, JsonFields& fields, ModelSpec& spec) {
  constexpr int32_t kContextOfMamba = 1 << 20;
  constexpr int32_t kHeadDimOfMamba = 8;  // no head has it
  spec.hidden = fields.Int("hidden_size", 1, ModelSpec::kMaxHidden);
  if (family.family == ModelFamily::kMamba2) {
    spec.head_dim = kHeadDimOfMamba;
    spec.context_length = kContextOfMamba;
  } else {
    BATON_RETURN_IF_ERROR(ReadHeads(family, fields, spec));
    // All layers of this family have experts.
    if (family.family != ModelFamily::kQwen35Moe) {
      spec.intermediate = fields.Int("intermediate_size", 1, ModelSpec::kMaxIntermediate);
    }
    spec.context_length = fields.Int(family.context_key, 1, kMaxContext);
  }
  spec.vocab = fields.Int("vocab_size", 1, ModelSpec::kMaxVocabulary);
  spec.norm_epsilon = static_cast<float>(fields.NumberOr(family.epsilon_key, family.epsilon, 0, 1));
  spec.tied_head = fields.BoolOr("tie_word_embeddings", family.tied_head);
  spec.layers.resize(ReadLayerCount(fields, spec.family));
  return fields.status();
}

// What the layers keep: KV, of a window or of all tokens, or states.
Status ReadMixers(JsonFields& fields, ModelSpec& spec) {
  if (HasMamba(spec.family)) return ReadMamba(fields, spec);
  if (spec.family == ModelFamily::kKimiLinear) return ReadKimi(fields, spec);
  if (spec.family == ModelFamily::kDeepSeekV32) return ReadIndex(fields, spec);
  if (spec.family == ModelFamily::kLlama4) return OkStatus();  // ReadLlama4Attention
  return HasDeltaNets(spec.family) ? ReadDeltaNets(fields, spec) : ReadWindows(fields, spec);
}

StatusOr<ModelSpec> ReadConfig(JsonFields& fields) {
  ModelSpec spec;
  BATON_ASSIGN_OR_RETURN(const HfFamily family, ReadFamily(fields));
  spec.family = family.family;
  BATON_ASSIGN_OR_RETURN(spec.feed_forward, ReadFeedForward(spec.family, fields));
  BATON_RETURN_IF_ERROR(RefuseWhatWeLack(spec.family, fields));
  BATON_RETURN_IF_ERROR(ReadSizes(family, fields, spec));
  BATON_RETURN_IF_ERROR(ReadBlocks(family, fields, spec));
  BATON_RETURN_IF_ERROR(ReadScales(fields, spec));
  if (fields.Has("bos_token_id"))
    spec.bos = fields.Int("bos_token_id", 0, ModelSpec::kMaxVocabulary);
  AddEndTokens(fields, spec);
  BATON_RETURN_IF_ERROR(fields.status());
  if (HasLatentAttention(spec.family)) BATON_RETURN_IF_ERROR(ReadLatent(fields, spec));
  BATON_RETURN_IF_ERROR(ReadRope(family, fields, spec));
  if (HasLatentAttention(spec.family)) BATON_RETURN_IF_ERROR(ReadLatentRope(fields, spec));
  BATON_RETURN_IF_ERROR(ReadMixers(fields, spec));
  BATON_RETURN_IF_ERROR(ReadRotaryLayers(fields, spec));
  if (spec.family == ModelFamily::kLlama4) BATON_RETURN_IF_ERROR(ReadLlama4Attention(fields, spec));
  if (MayHaveExperts(spec)) BATON_RETURN_IF_ERROR(ReadExperts(fields, spec));
  return spec;
}

// Whether the configuration is that of a model with images, whose text model, the object
// "text_config", is one of ours.
bool HasTextModel(const JsonFields& fields) {
  if (!fields.Has("text_config")) return false;
  return fields.IsText("model_type", "llama4") || fields.IsText("model_type", "qwen3_5") ||
         fields.IsText("model_type", "qwen3_5_moe");
}

StatusOr<ModelSpec> ReadTextModel(JsonFields& whole) {
  BATON_ASSIGN_OR_RETURN(const auto config, whole.Object("text_config"));
  BATON_ASSIGN_OR_RETURN(ModelSpec spec, ReadConfig(*config));
  // The head is that of the whole model.
  spec.tied_head = whole.BoolOr("tie_word_embeddings", spec.tied_head);
  BATON_RETURN_IF_ERROR(whole.status());
  return spec;
}

}  // namespace

StatusOr<ModelSpec> SpecFromHfDirectory(const std::string& directory) {
  const std::string path = directory + "/config.json";
  BATON_ASSIGN_OR_RETURN(const auto config, ReadConfigFile(path));
  BATON_RETURN_IF_ERROR(ReadQuantization(*config).status());
  BATON_ASSIGN_OR_RETURN(ModelSpec spec,
                         HasTextModel(*config) ? ReadTextModel(*config) : ReadConfig(*config));
  const std::string generation_path = directory + "/generation_config.json";
  std::error_code ignored;
  if (std::filesystem::exists(generation_path, ignored)) {
    BATON_ASSIGN_OR_RETURN(const auto generation, ReadConfigFile(generation_path));
    AddEndTokens(*generation, spec);
    BATON_RETURN_IF_ERROR(generation->status());
  }
  // The checkpoints of sentence-transformers have no head of their own.
  if (std::filesystem::exists(directory + "/modules.json", ignored)) spec.tied_head = true;
  BATON_RETURN_IF_ERROR(spec.Validate(path));
  return spec;
}

}  // namespace baton
