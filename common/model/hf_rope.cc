#include "common/model/hf_rope.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace baton {
namespace {

constexpr int32_t kMaxContext = ModelSpec::kMaxContext;
constexpr double kMaxTheta = 1e12;

// arXiv:2309.00071, with DeepSeek's `mscale` and `mscale_all_dim` when the config has them.
double YarnAttentionFactor(JsonFields& rope, double factor) {
  if (rope.Has("attention_factor")) return rope.Number("attention_factor", 1e-3, 1e3);
  const double scale = rope.NumberOr("mscale", 0, 0, 1e3);
  const double all = rope.NumberOr("mscale_all_dim", 0, 0, 1e3);
  return scale > 0 && all > 0 ? YarnMagnitude(factor, scale) / YarnMagnitude(factor, all)
                              : YarnMagnitude(factor, 1);
}

// Hunyuan's `dynamic` scaling: a theta that depends on neither the context nor the position.
Status ReadAlpha(JsonFields& rope, const ModelSpec& spec, RopeSpec& to) {
  const double alpha = rope.Number("alpha", 1, 1e6);
  if (spec.head_dim <= 2) {
    rope.Fail(InvalidArgument("{}: head dimension {} is too small for rope scaling with alpha",
                              rope.file(),
                              spec.head_dim));
  }
  BATON_RETURN_IF_ERROR(rope.status());
  const double dim = spec.head_dim;
  to.theta *= std::pow(alpha, dim / (dim - 2));
  return OkStatus();
}

// LongRoPE has one list of factors for contexts up to the original length and one for longer ones.
// All positions of a sequence need the same list, so a sequence that grows beyond the original
// length would make its cached keys wrong. So the context length of the model decides.
Status ReadLong(JsonFields& fields, JsonFields& rope, ModelSpec& spec) {
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  RopeSpec& to = spec.rope;
  to.scaling = RopeScaling::kLong;
  to.original_context =
      (rope.Has(kOriginal) ? rope : fields).IntOr(kOriginal, spec.context_length, 2, kMaxContext);
  BATON_RETURN_IF_ERROR(fields.status());
  BATON_RETURN_IF_ERROR(rope.status());
  const bool is_long = spec.context_length > to.original_context;
  BATON_ASSIGN_OR_RETURN(to.factors,
                         rope.Numbers(is_long ? "long_factor" : "short_factor", 1e-6, 1e6));
  to.factor = std::max(1.0, static_cast<double>(spec.context_length) / to.original_context);
  const double magnitude = std::sqrt(1 + std::log(to.factor) / std::log(to.original_context));
  to.attention_factor = rope.NumberOr("attention_factor", magnitude, 1e-3, 1e3);
  for (const std::string_view key : {"long_mscale", "short_mscale"}) {
    if (!rope.Has(key)) continue;
    return MakeStatus(StatusCode::kUnimplemented, "{}: {} is not supported", rope.file(), key);
  }
  return rope.status();
}

// `rope` holds the scaling keys: rope_parameters, or the older rope_scaling.
Status ReadScaling(JsonFields& fields, JsonFields& rope, ModelSpec& spec, RopeSpec& to) {
  const std::string kind = rope.TextOr("rope_type", rope.TextOr("type", "default"));
  BATON_RETURN_IF_ERROR(rope.status());
  if (kind == "default") return OkStatus();
  // Older files of Phi-3 name longrope otherwise.
  const bool phi3 = spec.family == ModelFamily::kPhi3;
  if (phi3 && (kind == "longrope" || kind == "su" || kind == "yarn")) {
    return ReadLong(fields, rope, spec);
  }
  if (kind == "dynamic" && rope.Has("alpha")) return ReadAlpha(rope, spec, to);
  const int32_t trained = spec.context_length;
  if (kind == "linear") {
    to.scaling = RopeScaling::kLinear;
    to.factor = rope.Number("factor", 1, 1e6);
    // The context length of Gemma 3 is that with scaling.
    const double stretched = spec.family == ModelFamily::kGemma3 ? 1 : to.factor;
    spec.context_length =
        static_cast<int32_t>(std::min<double>(kMaxContext, spec.context_length * stretched));
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

// The scaling of gpt-oss where the configuration states none.
void SetScalingOfGptOss(ModelSpec& spec) {
  RopeSpec& to = spec.rope;
  to.scaling = RopeScaling::kYarn;
  to.original_context = 4096;
  to.factor = 32;
  to.attention_factor = YarnMagnitude(to.factor, 1);
  to.truncate = false;
  spec.context_length = std::max(spec.context_length, 4096 * 32);
}

// Whether layers with a window have a rotary embedding of their own.
bool HasWindowRope(ModelFamily family) {
  return family == ModelFamily::kGemma3 || family == ModelFamily::kOlmo3;
}

// The layers with a window have a theta of their own, or the same, and no scaling. `rope` has the
// theta that the older keys state. The newer ones have an object for each kind of layer.
Status ReadTwoRopes(JsonFields& fields, ModelSpec& spec) {
  RopeSpec& to = spec.rope;
  to.rotary_dim = spec.head_dim;
  spec.window_rope = to;
  const bool gemma = spec.family == ModelFamily::kGemma3;
  if (gemma) spec.window_rope->theta = fields.NumberOr("rope_local_base_freq", 1e4, 1, kMaxTheta);
  if (!fields.Has("rope_parameters")) {
    if (!fields.Has("rope_scaling")) return fields.status();
    BATON_ASSIGN_OR_RETURN(const auto scaling, fields.Object("rope_scaling"));
    return ReadScaling(fields, *scaling, spec, to);
  }
  BATON_ASSIGN_OR_RETURN(const auto kinds, fields.Object("rope_parameters"));
  for (const auto& [kind, rope] : {std::pair<std::string_view, RopeSpec*>{"full_attention", &to},
                                   {"sliding_attention", &*spec.window_rope}}) {
    BATON_ASSIGN_OR_RETURN(const auto parameters, kinds->Object(kind));
    rope->theta = parameters->NumberOr("rope_theta", rope->theta, 1, kMaxTheta);
    BATON_RETURN_IF_ERROR(ReadScaling(fields, *parameters, spec, *rope));
  }
  return fields.status();
}

}  // namespace

double YarnMagnitude(double factor, double scale) {
  return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

Status ReadRope(const HfFamily& family, JsonFields& fields, ModelSpec& spec) {
  RopeSpec& to = spec.rope;
  to.pairing = family.pairing;
  // GPT-NeoX has keys of its own; MiniMax states the number of rotated dimensions.
  const bool neox = family.family == ModelFamily::kGptNeox;
  to.theta = fields.NumberOr(neox ? "rotary_emb_base" : "rope_theta", family.theta, 1, kMaxTheta);
  double rotated =
      fields.NumberOr(neox ? "rotary_pct" : "partial_rotary_factor", family.rotated, 0, 1);
  const bool current = fields.Has("rope_parameters");
  if (HasWindowRope(family.family)) return ReadTwoRopes(fields, spec);
  if (current || fields.Has("rope_scaling")) {
    BATON_ASSIGN_OR_RETURN(const auto rope,
                           fields.Object(current ? "rope_parameters" : "rope_scaling"));
    to.theta = rope->NumberOr("rope_theta", to.theta, 1, kMaxTheta);
    rotated = rope->NumberOr("partial_rotary_factor", rotated, 0, 1);
    BATON_RETURN_IF_ERROR(ReadScaling(fields, *rope, spec, to));
  } else if (family.family == ModelFamily::kGptOss) {
    SetScalingOfGptOss(spec);
  }
  to.rotary_dim = static_cast<int32_t>(spec.head_dim * rotated);
  if (family.family == ModelFamily::kMiniMaxM2) {
    to.rotary_dim = fields.IntOr("rotary_dim", to.rotary_dim, 2, ModelSpec::kMaxHeadDim);
  }
  return fields.status();
}

}  // namespace baton
