#include "common/model/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "common/kvcache/layout.h"
#include "common/model/config_fields.h"
#include "common/model/gguf_deepseek.h"
#include "common/model/gguf_experts.h"
#include "common/model/gguf_families.h"
#include "common/model/gguf_gemma.h"
#include "common/model/gguf_recurrent.h"
#include "common/model/hf_latent.h"
#include "common/model/weight_names.h"

namespace baton {
namespace {

constexpr int32_t kMaxContext = ModelSpec::kMaxContext;

struct Architecture {
  std::string_view name;
  ModelFamily family;
  RopePairing pairing;
};

// llama.cpp permutes the q and k rows of Granite, SmolLM3 and the architecture "llama", which
// Mistral and Mixtral files also have.
constexpr Architecture kArchitectures[] = {
    {"llama", ModelFamily::kLlama, RopePairing::kAdjacent},
    {"qwen2", ModelFamily::kQwen2, RopePairing::kHalves},
    {"qwen3", ModelFamily::kQwen3, RopePairing::kHalves},
    {"qwen3moe", ModelFamily::kQwen3Moe, RopePairing::kHalves},
    {"glm4", ModelFamily::kGlm4, RopePairing::kAdjacent},
    {"granite", ModelFamily::kGranite, RopePairing::kAdjacent},
    {"granitemoe", ModelFamily::kGraniteMoe, RopePairing::kAdjacent},
    {"olmo2", ModelFamily::kOlmo2, RopePairing::kHalves},
    {"phi3", ModelFamily::kPhi3, RopePairing::kHalves},
    {"qwen2moe", ModelFamily::kQwen2Moe, RopePairing::kHalves},
    {"seed_oss", ModelFamily::kSeedOss, RopePairing::kHalves},
    {"smollm3", ModelFamily::kSmolLm3, RopePairing::kAdjacent},
    {"deepseek2", ModelFamily::kDeepSeekV2, RopePairing::kAdjacent},
    {"gpt-oss", ModelFamily::kGptOss, RopePairing::kHalves},
    {"gemma2", ModelFamily::kGemma2, RopePairing::kHalves},
    {"gemma3", ModelFamily::kGemma3, RopePairing::kHalves},
    {"command-r", ModelFamily::kCohere, RopePairing::kAdjacent},
    {"cohere2", ModelFamily::kCohere2, RopePairing::kAdjacent},
    {"exaone4", ModelFamily::kExaone4, RopePairing::kHalves},
    {"glm4moe", ModelFamily::kGlm4Moe, RopePairing::kHalves},
    {"dots1", ModelFamily::kDots1, RopePairing::kHalves},
    {"minimax-m2", ModelFamily::kMiniMaxM2, RopePairing::kHalves},
    {"ernie4_5-moe", ModelFamily::kErnieMoe, RopePairing::kAdjacent},
    {"qwen3next", ModelFamily::kQwen3Next, RopePairing::kHalves},
    {"qwen35", ModelFamily::kQwen35, RopePairing::kHalves},
    {"qwen35moe", ModelFamily::kQwen35Moe, RopePairing::kHalves},
    {"falcon-h1", ModelFamily::kFalconH1, RopePairing::kHalves},
    {"mamba2", ModelFamily::kMamba2, RopePairing::kHalves},
    {"stablelm", ModelFamily::kStableLm, RopePairing::kHalves},
    {"hunyuan-dense", ModelFamily::kHunyuan, RopePairing::kHalves},
    {"hunyuan-moe", ModelFamily::kHunyuanMoe, RopePairing::kHalves},
    {"jamba", ModelFamily::kJamba, RopePairing::kHalves},
    {"nemotron_h", ModelFamily::kNemotronH, RopePairing::kHalves},
    {"nemotron_h_moe", ModelFamily::kNemotronH, RopePairing::kHalves},
    {"kimi-linear", ModelFamily::kKimiLinear, RopePairing::kHalves},
    {"phi2", ModelFamily::kPhi, RopePairing::kHalves},
    {"gptneox", ModelFamily::kGptNeox, RopePairing::kHalves},
    {"llama4", ModelFamily::kLlama4, RopePairing::kAdjacent},
};

StatusOr<Architecture> FindArchitecture(const GgufFile& gguf) {
  BATON_ASSIGN_OR_RETURN(const std::string_view name, gguf.String("general.architecture"));
  std::string supported;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return architecture;
    supported += fmt::format(" {}", architecture.name);
  }
  return MakeStatus(StatusCode::kUnimplemented,
                    "{}: architecture {} is not supported; supported are{}",
                    gguf.path(),
                    name,
                    supported);
}

const FileTensor* FindTensor(const GgufFile& gguf, const WeightId& id) {
  const std::string name = NameOf(id, NamingScheme::kGguf).tensor;
  const auto found = std::find_if(gguf.tensors().begin(),
                                  gguf.tensors().end(),
                                  [&](const FileTensor& tensor) { return tensor.name == name; });
  return found == gguf.tensors().end() ? nullptr : &*found;
}

Status ReadRope(GgufFields& fields, ModelSpec& spec) {
  RopeSpec& rope = spec.rope;
  rope.theta = fields.NumberOr("rope.freq_base", 10000, 1, 1e12);
  rope.rotary_dim = fields.IntOr("rope.dimension_count", spec.head_dim, 1, ModelSpec::kMaxHeadDim);
  // Files from before 2024 have only rope.scale_linear.
  const std::string kind =
      fields.TextOr("rope.scaling.type", fields.Has("rope.scale_linear") ? "linear" : "none");
  BATON_RETURN_IF_ERROR(fields.status());
  if (kind == "none") return OkStatus();
  const std::string_view factor_key =
      fields.Has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  rope.factor = fields.Number(factor_key, 1, 1e6);
  const int32_t trained = spec.context_length;
  if (kind == "linear") {
    rope.scaling = RopeScaling::kLinear;
    spec.context_length =
        static_cast<int32_t>(std::min<double>(kMaxContext, trained * rope.factor));
  } else if (kind == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.original_context =
        fields.IntOr("rope.scaling.original_context_length", trained, 1, kMaxContext);
    rope.beta_fast = fields.NumberOr("rope.scaling.yarn_beta_fast", rope.beta_fast, 1e-6, 1e6);
    rope.beta_slow = fields.NumberOr("rope.scaling.yarn_beta_slow", rope.beta_slow, 1e-6, 1e6);
    // llama.cpp multiplies the factor of the paper by the factor in the file.
    rope.attention_factor = (0.1 * std::log(rope.factor) + 1.0) *
                            fields.NumberOr("rope.scaling.attn_factor", 1.0, 1e-3, 1e3);
    // Its converter writes the whole factor where config.json states one.
    rope.attention_factor =
        fields.NumberOr("rope.scaling.yarn_attn_factor", rope.attention_factor, 1e-3, 1e3);
    const double stretched = rope.original_context * rope.factor;
    spec.context_length =
        static_cast<int32_t>(std::min<double>(kMaxContext, std::max<double>(trained, stretched)));
  } else {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: rope.scaling.type {} is not supported; none, linear and yarn are",
                      fields.file(),
                      kind);
  }
  return fields.status();
}

void ReadTokens(const GgufFile& gguf, ModelSpec& spec, Status& status) {
  GgufFields fields(gguf, "tokenizer.ggml.");
  for (const std::string_view key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    if (!fields.Has(key)) continue;
    const int32_t token = fields.Int(key, 0, ModelSpec::kMaxVocabulary);
    if (std::find(spec.eos.begin(), spec.eos.end(), token) == spec.eos.end()) {
      spec.eos.push_back(token);
    }
  }
  if (fields.Has("bos_token_id"))
    spec.bos = fields.Int("bos_token_id", 0, ModelSpec::kMaxVocabulary);
  status = fields.status();
}

// Refuses vision models of a text model's architecture, whose positions have several parts. Files
// of Qwen 3.5 always have the key; of text, all parts of a position are the same.
Status CheckText(const GgufFields& fields, const GgufFile& gguf, const Architecture& architecture) {
  if (!fields.Has("rope.dimension_sections") || IsQwen35(architecture.family)) return OkStatus();
  return MakeStatus(
      StatusCode::kUnimplemented,
      "{}: {}.rope.dimension_sections: rope in sections, which vision models have, is "
      "not supported",
      gguf.path(),
      architecture.name);
}

bool HasLayerNorms(ModelFamily family) {
  switch (family) {
    case ModelFamily::kCohere:
    case ModelFamily::kCohere2:
    case ModelFamily::kStableLm:
    case ModelFamily::kPhi:
    case ModelFamily::kGptNeox:
      return true;
    default:
      return false;
  }
}

// Nemotron-H has RMS norms, whose epsilon its files may have under the key of LayerNorm.
std::string_view EpsilonKey(const GgufFields& fields, ModelFamily family) {
  constexpr std::string_view kRms = "attention.layer_norm_rms_epsilon";
  const bool other =
      HasLayerNorms(family) || (family == ModelFamily::kNemotronH && !fields.Has(kRms));
  return other ? "attention.layer_norm_epsilon" : kRms;
}

// Reads the sizes, and returns that of a v head. A model whose layers have no attention has no
// heads; no head has its head dimension.
int32_t ReadSizes(GgufFields& fields, ModelSpec& spec) {
  constexpr int32_t kHeadDimOfMamba = 8;
  spec.hidden = fields.Int("embedding_length", 1, ModelSpec::kMaxHidden);
  spec.head_dim = kHeadDimOfMamba;
  if (spec.family != ModelFamily::kMamba2) {
    spec.heads = fields.Int("attention.head_count", 1, ModelSpec::kMaxHeads);
    if (!ListsLayersInGguf(spec.family)) {
      spec.kv_heads = fields.IntOr("attention.head_count_kv", spec.heads, 1, ModelSpec::kMaxHeads);
    }
    spec.head_dim =
        fields.IntOr("attention.key_length", spec.hidden / spec.heads, 1, ModelSpec::kMaxHeadDim);
  }
  if (spec.family != ModelFamily::kNemotronH) {
    spec.intermediate = fields.IntOr("feed_forward_length", 0, 0, ModelSpec::kMaxIntermediate);
  }
  spec.context_length = fields.Int("context_length", 1, kMaxContext);
  spec.norm_epsilon = static_cast<float>(fields.Number(EpsilonKey(fields, spec.family), 0, 1));
  // Layers of multi-token prediction stand behind the others.
  const int32_t predicting = fields.IntOr("nextn_predict_layers", 0, 0, kMaxLayers - 1);
  const int32_t blocks = fields.Int("block_count", predicting + 1, kMaxLayers);
  spec.layers.resize(std::max(1, blocks - predicting));
  const int32_t window = fields.IntOr("attention.sliding_window", 0, 0, kMaxContext);
  for (LayerSpec& layer : spec.layers) layer.window = window;
  return fields.IntOr("attention.value_length", spec.head_dim, 1, ModelSpec::kMaxHeadDim);
}

// The blocks of the families that differ from Llama's.
Status ReadBlocks(GgufFields& fields, const GgufFile& gguf, ModelSpec& spec) {
  const bool olmo = spec.family == ModelFamily::kOlmo2;
  if (HasTensor(gguf, WeightKind::kQueryNorm, 0)) {
    const bool projection = olmo || spec.family == ModelFamily::kMiniMaxM2;
    spec.qk_norm = projection ? QkNorm::kProjection : QkNorm::kHead;
  }
  if (spec.family == ModelFamily::kGlm4) spec.residual = ResidualForm::kPreAndPostNorm;
  if (olmo) spec.residual = ResidualForm::kPostNorm;
  if (spec.family == ModelFamily::kSmolLm3) {
    constexpr int32_t kInterval = 4;  // llama.cpp's; the files do not have it
    for (int32_t i = kInterval - 1; i < spec.layer_count(); i += kInterval) {
      spec.layers[i].rotary = false;
    }
  }
  if (spec.family == ModelFamily::kGptOss) {
    spec.attention_sinks = true;
    spec.rope.truncate = false;
    for (int32_t i = 1; i < spec.layer_count(); i += 2) spec.layers[i].window = 0;
  }
  const auto scale = [&fields](std::string_view key, double fallback) {
    return static_cast<float>(fields.NumberOr(key, fallback, 1e-6, ModelSpec::kMaxScale));
  };
  if (spec.family == ModelFamily::kGranite || spec.family == ModelFamily::kGraniteMoe) {
    spec.embedding_scale = scale("embedding_scale", 1);
    spec.residual_scale = scale("residual_scale", 1);
    if (fields.Has("attention.scale")) spec.attention_scale = scale("attention.scale", 1);
    spec.logit_scale = 1 / scale("logit_scale", 1);
  }
  return fields.status();
}

}  // namespace

std::vector<std::string_view> GgufArchitectures() {
  std::vector<std::string_view> names;
  for (const Architecture& architecture : kArchitectures) names.push_back(architecture.name);
  return names;
}

bool HasTensor(const GgufFile& gguf, WeightKind kind, int32_t layer) {
  return FindTensor(gguf, {kind, layer, 0}) != nullptr;
}

bool HasTensorInLayers(const GgufFile& gguf, WeightKind kind, int32_t layers) {
  for (int32_t i = 0; i < layers; ++i) {
    if (HasTensor(gguf, kind, i)) return true;
  }
  return false;
}

StatusOr<ModelSpec> SpecFromGguf(const GgufFile& gguf) {
  BATON_ASSIGN_OR_RETURN(const Architecture architecture, FindArchitecture(gguf));
  GgufFields fields(gguf, std::string(architecture.name) + ".");
  ModelSpec spec;
  spec.family = architecture.family;
  spec.rope.pairing = architecture.pairing;
  const int32_t value_dim = ReadSizes(fields, spec);
  BATON_RETURN_IF_ERROR(fields.status());
  if (ListsLayersInGguf(spec.family)) {
    BATON_RETURN_IF_ERROR(ReadListedLayersOfGguf(fields, gguf, spec));
  }
  const bool latent = HasLatentAttention(spec.family);
  if (latent) {
    BATON_RETURN_IF_ERROR(ReadLatentOfGguf(fields, gguf, spec));
  } else if (value_dim != spec.head_dim) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: attention.value_length {} differs from the key length {}",
                      gguf.path(),
                      value_dim,
                      spec.head_dim);
  }

  const FileTensor* embedding = FindTensor(gguf, {WeightKind::kEmbedding});
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return InvalidArgument("{}: tensor token_embd.weight is missing or is not a matrix",
                           gguf.path());
  }
  spec.vocab = static_cast<int32_t>(std::min<int64_t>(embedding->shape[0], INT32_MAX));
  spec.tied_head = !HasTensor(gguf, WeightKind::kHead, -1);
  const auto has = [&](WeightKind kind) {
    return HasTensorInLayers(gguf, kind, spec.layer_count());
  };
  spec.qkv_bias = has(WeightKind::kQueryBias);
  spec.o_bias = has(WeightKind::kAttentionOutputBias);
  spec.mlp_bias = has(WeightKind::kUpBias);
  spec.head_bias = HasTensor(gguf, WeightKind::kHeadBias, -1);
  spec.rope.file_factors = HasTensor(gguf, WeightKind::kRopeFactors, -1);

  BATON_RETURN_IF_ERROR(ReadBlocks(fields, gguf, spec));
  BATON_RETURN_IF_ERROR(CheckText(fields, gguf, architecture));
  BATON_RETURN_IF_ERROR(ReadRope(fields, spec));
  if (latent) BATON_RETURN_IF_ERROR(ReadLatentScaleOfGguf(fields, spec));
  if (IsGemma(spec.family)) BATON_RETURN_IF_ERROR(ReadGemmaOfGguf(fields, spec));
  BATON_RETURN_IF_ERROR(ReadFamilyOfGguf(fields, gguf, spec));
  const bool experts = fields.IntOr("expert_count", 0, 0, ModelSpec::kMaxExperts) > 0;
  BATON_RETURN_IF_ERROR(fields.status());
  if (experts && spec.family == ModelFamily::kLlama) spec.family = ModelFamily::kMixtral;
  if (MayHaveExpertsInGguf(spec.family)) {
    BATON_RETURN_IF_ERROR(ReadExpertsOfGguf(fields, gguf, spec));
  } else if (experts) {
    return MakeStatus(
        StatusCode::kUnimplemented,
        "{}: {}.expert_count: files of this architecture with experts are not "
        "supported; a family with experts has an architecture of its own, or is llama "
        "(Mixtral)",
        gguf.path(),
        architecture.name);
  }
  Status status;
  ReadTokens(gguf, spec, status);
  BATON_RETURN_IF_ERROR(status);
  BATON_RETURN_IF_ERROR(spec.Validate(gguf.path()));
  return spec;
}

}  // namespace baton
