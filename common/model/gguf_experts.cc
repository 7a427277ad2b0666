#include "common/model/gguf_experts.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "common/model/gguf_config.h"
#include "common/model/hf_latent.h"

namespace baton {
namespace {

bool IsQwenWithSharedExpert(ModelFamily family) {
  return family == ModelFamily::kQwen2Moe || family == ModelFamily::kQwen3Next ||
         family == ModelFamily::kQwen35Moe;
}

// Whether the router is one of those of DeepSeek, or like them.
bool HasGroups(ModelFamily family) {
  switch (family) {
    case ModelFamily::kDots1:
    case ModelFamily::kGlm4Moe:
    case ModelFamily::kMiniMaxM2:
    case ModelFamily::kErnieMoe:
    case ModelFamily::kNemotronH:
      return true;
    default:
      return HasLatentAttention(family);
  }
}

bool IsDeepSeek(ModelFamily family) {
  return HasLatentAttention(family) && family != ModelFamily::kKimiLinear;
}

// Which layers have experts, and whether a bias selects them.
void FindLayers(const GgufFile& gguf, ModelSpec& spec) {
  for (int32_t i = 0; i < spec.layer_count(); ++i) {
    spec.layers[i].moe = HasTensor(gguf, WeightKind::kRouter, i);
    if (HasTensor(gguf, WeightKind::kSelectionBias, i)) spec.moe.selection_bias = true;
  }
}

// Llama 4: the sigmoid of a chosen expert's logit multiplies its input. The shared expert has the
// size of one expert.
Status ReadLlama4(GgufFields& fields, ModelSpec& spec) {
  MoeSpec& moe = spec.moe;
  moe.intermediate = fields.Int("expert_feed_forward_length", 1, ModelSpec::kMaxIntermediate);
  moe.shared_intermediate = moe.intermediate;
  moe.score = RouterScore::kSigmoidOfLogits;
  moe.normalize = false;
  moe.weighted_inputs = true;
  if (std::ranges::all_of(spec.layers, &LayerSpec::moe)) spec.intermediate = 0;
  return fields.status();
}

// Softmax routers, without groups.
Status ReadPlain(GgufFields& fields, ModelSpec& spec) {
  const bool hunyuan = spec.family == ModelFamily::kHunyuanMoe;
  const bool shared = IsQwenWithSharedExpert(spec.family) || hunyuan;
  constexpr std::string_view kShared = "expert_shared_feed_forward_length";
  if (shared) {
    spec.moe.shared_intermediate = fields.Int(kShared, 1, ModelSpec::kMaxIntermediate);
    spec.moe.shared_gate = !hunyuan;
  } else if (fields.Has(kShared)) {
    return MakeStatus(
        StatusCode::kUnimplemented, "{}: shared experts are not supported", fields.file());
  }
  if (spec.family == ModelFamily::kGptOss) {
    spec.moe.biases = true;
    spec.moe.gate = {.limit = 7, .alpha = 1.702f};  // the files do not have them
    spec.intermediate = 0;
  }
  // Files of Mixtral, Granite and Jamba have only one feed-forward size.
  const bool jamba = spec.family == ModelFamily::kJamba;
  const bool one_width =
      spec.family == ModelFamily::kMixtral || spec.family == ModelFamily::kGraniteMoe || jamba;
  const std::string_view width = one_width && !fields.Has("expert_feed_forward_length")
                                     ? "feed_forward_length"
                                     : "expert_feed_forward_length";
  spec.moe.intermediate = fields.Int(width, 1, ModelSpec::kMaxIntermediate);
  const bool normalizes = spec.family != ModelFamily::kQwen2Moe && !jamba;
  spec.moe.normalize = fields.BoolOr("expert_weights_norm", normalizes);
  if ((one_width && !jamba) || hunyuan) spec.intermediate = 0;
  return fields.status();
}

// The score of the experts. That of DeepSeek is in the files, except in those of V2 from before V3,
// and tells the family.
void ReadScore(GgufFields& fields, ModelSpec& spec) {
  constexpr int32_t kSoftmax = 1;
  constexpr int32_t kSigmoid = 2;
  bool sigmoid = spec.family != ModelFamily::kErnieMoe;
  if (IsDeepSeek(spec.family)) {
    sigmoid = fields.IntOr("expert_gating_func", kSoftmax, kSoftmax, kSigmoid) == kSigmoid;
    spec.family = sigmoid ? ModelFamily::kDeepSeekV3 : ModelFamily::kDeepSeekV2;
  } else {
    const int32_t only = sigmoid ? kSigmoid : kSoftmax;
    fields.IntOr("expert_gating_func", only, only, only);
  }
  if (sigmoid) spec.moe.score = RouterScore::kSigmoid;
  const bool best = spec.family == ModelFamily::kDeepSeekV2;
  spec.moe.group_score = best ? GroupScore::kBest : GroupScore::kBestTwo;
}

// Experts without a gate, and a shared one that has a size of its own.
Status ReadNemotronH(GgufFields& fields, MoeSpec& moe) {
  if (fields.IntOr("moe_latent_size", 0, 0, ModelSpec::kMaxHidden) > 0) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: moe_latent_size is not 0; experts of a latent are not supported",
                      fields.file());
  }
  moe.shared_intermediate =
      fields.IntOr("expert_shared_feed_forward_length", 0, 0, ModelSpec::kMaxIntermediate);
  moe.gate.ungated = true;
  return fields.status();
}

// The routers of DeepSeek, and those like them.
Status ReadGrouped(GgufFields& fields, ModelSpec& spec) {
  MoeSpec& moe = spec.moe;
  const bool always = spec.family == ModelFamily::kMiniMaxM2 ||
                      spec.family == ModelFamily::kErnieMoe ||
                      spec.family == ModelFamily::kKimiLinear;
  moe.intermediate = fields.Int("expert_feed_forward_length", 1, ModelSpec::kMaxIntermediate);
  moe.normalize = always || fields.BoolOr("expert_weights_norm", false);
  moe.scale =
      static_cast<float>(fields.NumberOr("expert_weights_scale", 1, 1e-6, ModelSpec::kMaxScale));
  moe.groups = fields.IntOr("expert_group_count", 1, 1, ModelSpec::kMaxExperts);
  moe.groups_per_token = fields.IntOr("expert_group_used_count", 1, 1, ModelSpec::kMaxExperts);
  if (spec.family == ModelFamily::kErnieMoe) moe.least_sum = 1e-12f;  // the files do not have it
  ReadScore(fields, spec);
  if (spec.family == ModelFamily::kNemotronH) return ReadNemotronH(fields, moe);
  const int64_t shared = fields.IntOr("expert_shared_count", 0, 0, ModelSpec::kMaxExperts);
  moe.shared_intermediate = static_cast<int32_t>(
      std::min<int64_t>(shared * moe.intermediate, int64_t{ModelSpec::kMaxIntermediate} + 1));
  if (spec.family == ModelFamily::kMiniMaxM2) spec.intermediate = 0;
  return fields.status();
}

}  // namespace

bool MayHaveExpertsInGguf(ModelFamily family) {
  switch (family) {
    case ModelFamily::kMixtral:
    case ModelFamily::kQwen3Moe:
    case ModelFamily::kQwen2Moe:
    case ModelFamily::kQwen3Next:
    case ModelFamily::kQwen35Moe:
    case ModelFamily::kGraniteMoe:
    case ModelFamily::kGptOss:
    case ModelFamily::kHunyuanMoe:
    case ModelFamily::kLlama4:
    case ModelFamily::kJamba:
      return true;
    default:
      return HasGroups(family);
  }
}

Status ReadExpertsOfGguf(GgufFields& fields, const GgufFile& gguf, ModelSpec& spec) {
  FindLayers(gguf, spec);
  // Some models of these families have no experts, or one, which is a dense network.
  const bool optional =
      spec.family == ModelFamily::kJamba || spec.family == ModelFamily::kNemotronH;
  if (optional && std::ranges::none_of(spec.layers, &LayerSpec::moe)) return OkStatus();
  spec.moe.experts = fields.Int("expert_count", 1, ModelSpec::kMaxExperts);
  spec.moe.experts_per_token = fields.Int("expert_used_count", 1, ModelSpec::kMaxExperts);
  if (spec.family == ModelFamily::kLlama4) return ReadLlama4(fields, spec);
  return HasGroups(spec.family) ? ReadGrouped(fields, spec) : ReadPlain(fields, spec);
}

}  // namespace baton
