#include "common/model/hf_experts.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/kvcache/layout.h"

namespace baton {
namespace {

// The key of the number of experts. That of published checkpoints and that of transformers 5 may
// differ.
std::string_view KeyOfExperts(const JsonFields& fields, ModelFamily family) {
  if (family == ModelFamily::kDots1 || family == ModelFamily::kGlm4Moe) return "n_routed_experts";
  return fields.Has("num_experts") ? "num_experts" : "num_local_experts";
}

// All layers have experts, whose size is intermediate_size.
void MakeAllLayersExperts(ModelSpec& spec) {
  spec.moe.intermediate = std::exchange(spec.intermediate, 0);
  for (LayerSpec& layer : spec.layers) layer.moe = true;
}

Status ReadMiniMax(JsonFields& fields, ModelSpec& spec) {
  const std::string scores = fields.TextOr("scoring_func", "sigmoid");
  if (scores != "sigmoid" || !fields.BoolOr("use_routing_bias", true)) {
    fields.Fail(MakeStatus(StatusCode::kUnimplemented,
                           "{}: scoring_func is {}, with use_routing_bias {}; only sigmoid with a "
                           "routing bias is supported",
                           fields.file(),
                           scores,
                           fields.BoolOr("use_routing_bias", true)));
  }
  spec.moe.score = RouterScore::kSigmoid;
  spec.moe.selection_bias = true;
  MakeAllLayersExperts(spec);
  return fields.status();
}

// Qwen 2 and 3: some layers have experts, beside which Qwen 2 has a shared one with a gate.
Status ReadQwen(JsonFields& fields, ModelSpec& spec) {
  spec.moe.intermediate = fields.Int("moe_intermediate_size", 1, ModelSpec::kMaxIntermediate);
  spec.moe.normalize = fields.BoolOr("norm_topk_prob", false);
  if (spec.family == ModelFamily::kQwen2Moe) {
    spec.moe.shared_intermediate =
        fields.IntOr("shared_expert_intermediate_size", 5632, 1, ModelSpec::kMaxIntermediate);
    spec.moe.shared_gate = true;
  }
  const int32_t step = fields.IntOr("decoder_sparse_step", 1, 1, kMaxLayers);
  const std::vector<int32_t> dense = fields.IntsOr("mlp_only_layers", 0, kMaxLayers);
  for (int32_t i = 0; i < spec.layer_count(); ++i) {
    const bool listed = std::find(dense.begin(), dense.end(), i) != dense.end();
    spec.layers[i].moe = !listed && (i + 1) % step == 0;
  }
  return fields.status();
}

// The router of DeepSeek-V3, which dots.llm1 and GLM-4.5 have: sigmoid scores, a bias that only
// selects, and groups. The first layers are dense.
Status ReadDeepSeek(JsonFields& fields, ModelSpec& spec) {
  const bool glm = spec.family == ModelFamily::kGlm4Moe;
  MoeSpec& moe = spec.moe;
  moe.intermediate = fields.Int("moe_intermediate_size", 1, ModelSpec::kMaxIntermediate);
  moe.score = RouterScore::kSigmoid;
  moe.selection_bias = true;
  moe.normalize = fields.BoolOr("norm_topk_prob", glm);
  moe.scale =
      static_cast<float>(fields.NumberOr("routed_scaling_factor", 1, 1e-6, ModelSpec::kMaxScale));
  moe.groups = fields.IntOr("n_group", 1, 1, ModelSpec::kMaxExperts);
  moe.groups_per_token = fields.IntOr("topk_group", 1, 1, ModelSpec::kMaxExperts);
  const int64_t shared = fields.IntOr("n_shared_experts", glm ? 1 : 0, 0, ModelSpec::kMaxExperts);
  moe.shared_intermediate = static_cast<int32_t>(
      std::min<int64_t>(shared * moe.intermediate, int64_t{ModelSpec::kMaxIntermediate} + 1));
  const int32_t dense = fields.IntOr("first_k_dense_replace", glm ? 1 : 0, 0, kMaxLayers);
  for (int32_t i = dense; i < spec.layer_count(); ++i) spec.layers[i].moe = true;
  return fields.status();
}

// gpt-oss: a softmax over the logits of the chosen experts, which is one over all experts, scaled
// to sum to 1.
Status ReadGptOss(JsonFields& fields, ModelSpec& spec) {
  const auto number = [&fields](std::string_view key, double fallback) {
    return static_cast<float>(fields.NumberOr(key, fallback, 1e-6, ModelSpec::kMaxScale));
  };
  spec.moe.biases = true;
  spec.moe.gate = {.limit = number("swiglu_limit", 7), .alpha = number("swiglu_alpha", 1.702)};
  MakeAllLayersExperts(spec);
  return fields.status();
}

}  // namespace

bool HasExperts(ModelFamily family) {
  switch (family) {
    case ModelFamily::kMixtral:
    case ModelFamily::kGraniteMoe:
    case ModelFamily::kQwen2Moe:
    case ModelFamily::kQwen3Moe:
    case ModelFamily::kDots1:
    case ModelFamily::kGlm4Moe:
    case ModelFamily::kMiniMaxM2:
    case ModelFamily::kGptOss:
      return true;
    default:
      return false;
  }
}

Status ReadExperts(JsonFields& fields, ModelSpec& spec) {
  spec.moe.experts = fields.Int(KeyOfExperts(fields, spec.family), 1, ModelSpec::kMaxExperts);
  spec.moe.experts_per_token = fields.Int("num_experts_per_tok", 1, ModelSpec::kMaxExperts);
  switch (spec.family) {
    case ModelFamily::kMiniMaxM2:
      return ReadMiniMax(fields, spec);
    case ModelFamily::kQwen2Moe:
    case ModelFamily::kQwen3Moe:
      return ReadQwen(fields, spec);
    case ModelFamily::kDots1:
    case ModelFamily::kGlm4Moe:
      return ReadDeepSeek(fields, spec);
    case ModelFamily::kGptOss:
      return ReadGptOss(fields, spec);
    default:
      MakeAllLayersExperts(spec);
      return fields.status();
  }
}

}  // namespace baton
