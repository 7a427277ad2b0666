#include "common/model/hf_experts.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "common/kvcache/layout.h"

namespace baton {
namespace {

// The key of the number of experts. That of published checkpoints and that of transformers 5 may
// differ.
std::string_view KeyOfExperts(const JsonFields& fields, ModelFamily family) {
  switch (family) {
    case ModelFamily::kDots1:
    case ModelFamily::kGlm4Moe:
    case ModelFamily::kDeepSeekV2:
    case ModelFamily::kDeepSeekV3:
    case ModelFamily::kDeepSeekV32:
    case ModelFamily::kNemotronH:
      return "n_routed_experts";
    case ModelFamily::kErnieMoe:
      return "moe_num_experts";
    case ModelFamily::kHunyuanMoe:
    case ModelFamily::kJamba:
    case ModelFamily::kKimiLinear:
      return "num_experts";
    case ModelFamily::kQwen2Moe:
    case ModelFamily::kQwen3Moe:
    case ModelFamily::kQwen3Next:
    case ModelFamily::kQwen35Moe:
      return fields.Has("num_experts") || !fields.Has("num_local_experts") ? "num_experts"
                                                                           : "num_local_experts";
    default:
      return fields.Has("num_experts") ? "num_experts" : "num_local_experts";
  }
}

// The key of the number of experts that a token chooses.
std::string_view KeyOfChosen(ModelFamily family) {
  if (family == ModelFamily::kHunyuanMoe) return "moe_topk";
  if (family == ModelFamily::kKimiLinear) return "num_experts_per_token";
  return family == ModelFamily::kErnieMoe ? "moe_k" : "num_experts_per_tok";
}

// A number of experts. Published files of Hunyuan list it for each layer.
int32_t ReadCount(std::string_view key, ModelFamily family, JsonFields& fields) {
  std::vector<int32_t> counts;
  if (family == ModelFamily::kHunyuanMoe) counts = fields.IntsOr(key, 1, ModelSpec::kMaxExperts);
  if (counts.empty()) return fields.Int(key, 1, ModelSpec::kMaxExperts);
  const auto other = std::ranges::find_if(counts, [&](int32_t n) { return n != counts.front(); });
  if (other != counts.end()) {
    fields.Fail(MakeStatus(StatusCode::kUnimplemented,
                           "{}: {} has {} and {}; only equal numbers for all layers are supported",
                           fields.file(),
                           key,
                           counts.front(),
                           *other));
  }
  return counts.front();
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

// Qwen 2, 3, 3-Next and 3.5: some layers have experts, of 3.5 all. Qwen 2, 3-Next and 3.5 have a
// shared one beside them, with a gate.
Status ReadQwen(JsonFields& fields, ModelSpec& spec) {
  spec.moe.intermediate = fields.Int("moe_intermediate_size", 1, ModelSpec::kMaxIntermediate);
  const bool always = spec.family == ModelFamily::kQwen35Moe;
  const bool next = always || spec.family == ModelFamily::kQwen3Next;
  spec.moe.normalize = always || fields.BoolOr("norm_topk_prob", next);
  if (next || spec.family == ModelFamily::kQwen2Moe) {
    spec.moe.shared_intermediate = fields.IntOr(
        "shared_expert_intermediate_size", next ? 512 : 5632, 1, ModelSpec::kMaxIntermediate);
    spec.moe.shared_gate = true;
  }
  if (always) {
    for (LayerSpec& layer : spec.layers) layer.moe = true;
    return fields.status();
  }
  const int32_t step = fields.IntOr("decoder_sparse_step", 1, 1, kMaxLayers);
  const std::vector<int32_t> dense = fields.IntsOr("mlp_only_layers", 0, kMaxLayers);
  for (int32_t i = 0; i < spec.layer_count(); ++i) {
    const bool listed = std::find(dense.begin(), dense.end(), i) != dense.end();
    spec.layers[i].moe = !listed && (i + 1) % step == 0;
  }
  return fields.status();
}

// The feed-forward size of `count` shared experts, which are one network. Beyond the highest
// allowed size, it is cut, so that Validate refuses it.
int32_t SizeOfShared(int64_t count, const MoeSpec& moe) {
  return static_cast<int32_t>(
      std::min<int64_t>(count * moe.intermediate, int64_t{ModelSpec::kMaxIntermediate} + 1));
}

// What a configuration of the families with DeepSeek's experts has where it states nothing.
struct DeepSeekDefaults {
  bool normalize = false;
  double scale = 1;
  int32_t groups = 1;
  int32_t groups_per_token = 1;
  int32_t shared_experts = 0;
  int32_t dense_layers = 0;
};

DeepSeekDefaults DefaultsOf(ModelFamily family) {
  switch (family) {
    case ModelFamily::kGlm4Moe:
      return {.normalize = true, .shared_experts = 1, .dense_layers = 1};
    case ModelFamily::kDeepSeekV2:
      return {.shared_experts = 2};
    case ModelFamily::kDeepSeekV3:
    case ModelFamily::kDeepSeekV32:
      return {.normalize = true,
              .scale = 2.5,
              .groups = 8,
              .groups_per_token = 4,
              .shared_experts = 1,
              .dense_layers = 3};
    default:
      return {};
  }
}

Status RefuseText(JsonFields& fields,
                  std::string_view key,
                  std::initializer_list<std::string_view> supported) {
  const std::string found = fields.TextOr(key, *supported.begin());
  BATON_RETURN_IF_ERROR(fields.status());
  if (std::ranges::find(supported, found) != supported.end()) return OkStatus();
  return MakeStatus(StatusCode::kUnimplemented,
                    "{}: {} is {}; supported: {}",
                    fields.file(),
                    key,
                    found,
                    fmt::join(supported, ", "));
}

// The router of DeepSeek-V2: softmax scores, whose weights are not normalised. A group of experts
// is as good as its best one.
Status ReadV2Router(JsonFields& fields, MoeSpec& moe) {
  BATON_RETURN_IF_ERROR(RefuseText(fields, "scoring_func", {"softmax"}));
  BATON_RETURN_IF_ERROR(RefuseText(fields, "topk_method", {"greedy", "group_limited_greedy"}));
  if (moe.normalize) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: norm_topk_prob is true; deepseek_v2 is supported with false only",
                      fields.file());
  }
  moe.group_score = GroupScore::kBest;
  if (fields.TextOr("topk_method", "greedy") == "greedy") moe.groups = moe.groups_per_token = 1;
  return fields.status();
}

// The router of DeepSeek-V3: sigmoid scores, a bias that only selects, and groups.
Status ReadV3Router(JsonFields& fields, MoeSpec& moe) {
  BATON_RETURN_IF_ERROR(RefuseText(fields, "scoring_func", {"sigmoid"}));
  BATON_RETURN_IF_ERROR(RefuseText(fields, "topk_method", {"noaux_tc"}));
  moe.score = RouterScore::kSigmoid;
  moe.selection_bias = true;
  return OkStatus();
}

// mlp_layer_types lists which layers have experts. Published files do not have it.
Status ReadMlpKinds(JsonFields& fields, ModelSpec& spec) {
  if (!fields.Has("mlp_layer_types")) return OkStatus();
  BATON_ASSIGN_OR_RETURN(
      const std::vector<bool> sparse,
      fields.LayersOfKind("mlp_layer_types", spec.layers.size(), "sparse", "dense"));
  for (size_t i = 0; i < sparse.size(); ++i) spec.layers[i].moe = sparse[i];
  return OkStatus();
}

// The numbers of DeepSeek's routers that are not in the names of experts.
void ReadRouting(JsonFields& fields, const DeepSeekDefaults& defaults, MoeSpec& moe) {
  moe.normalize = fields.BoolOr("norm_topk_prob", defaults.normalize);
  moe.scale = static_cast<float>(
      fields.NumberOr("routed_scaling_factor", defaults.scale, 1e-6, ModelSpec::kMaxScale));
  moe.groups = fields.IntOr("n_group", defaults.groups, 1, ModelSpec::kMaxExperts);
  moe.groups_per_token =
      fields.IntOr("topk_group", defaults.groups_per_token, 1, ModelSpec::kMaxExperts);
}

// Nemotron-H: the third router of DeepSeek, and experts without a gate.
Status ReadNemotronH(JsonFields& fields, ModelSpec& spec) {
  MoeSpec& moe = spec.moe;
  if (fields.Has("moe_latent_size")) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: moe_latent_size is set; only null is supported",
                      fields.file());
  }
  moe.intermediate = fields.Int("moe_intermediate_size", 1, ModelSpec::kMaxIntermediate);
  ReadRouting(fields, {.normalize = true}, moe);
  BATON_RETURN_IF_ERROR(ReadV3Router(fields, moe));
  if (fields.IntOr("n_shared_experts", 1, 0, ModelSpec::kMaxExperts) > 0) {
    moe.shared_intermediate =
        fields.Int("moe_shared_expert_intermediate_size", 1, ModelSpec::kMaxIntermediate);
  }
  moe.gate.ungated = true;
  return fields.status();
}

// The experts of DeepSeek, whose third router dots.llm1 and GLM-4.5 have, too. The first layers are
// dense.
Status ReadDeepSeek(JsonFields& fields, ModelSpec& spec) {
  const DeepSeekDefaults defaults = DefaultsOf(spec.family);
  MoeSpec& moe = spec.moe;
  moe.intermediate = fields.Int("moe_intermediate_size", 1, ModelSpec::kMaxIntermediate);
  ReadRouting(fields, defaults, moe);
  const bool second = spec.family == ModelFamily::kDeepSeekV2;
  BATON_RETURN_IF_ERROR(second ? ReadV2Router(fields, moe) : ReadV3Router(fields, moe));
  moe.shared_intermediate = SizeOfShared(
      fields.IntOr("n_shared_experts", defaults.shared_experts, 0, ModelSpec::kMaxExperts), moe);
  if (fields.IntOr("moe_layer_freq", 1, 0, kMaxLayers) != 1) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: moe_layer_freq is not 1; only 1 is supported",
                      fields.file());
  }
  const int32_t dense = fields.IntOr("first_k_dense_replace", defaults.dense_layers, 0, kMaxLayers);
  for (int32_t i = dense; i < spec.layer_count(); ++i) spec.layers[i].moe = true;
  BATON_RETURN_IF_ERROR(fields.status());
  return spec.family == ModelFamily::kDeepSeekV32 ? ReadMlpKinds(fields, spec) : OkStatus();
}

// Kimi Linear: the third router of DeepSeek with keys of its own. mlp_layer_types lists the layers
// with experts; published files say that only the first ones have none.
Status ReadKimi(JsonFields& fields, ModelSpec& spec) {
  MoeSpec& moe = spec.moe;
  BATON_RETURN_IF_ERROR(RefuseText(fields, "moe_router_activation_func", {"sigmoid"}));
  moe.score = RouterScore::kSigmoid;
  moe.selection_bias = true;
  moe.intermediate = fields.Int("moe_intermediate_size", 1, ModelSpec::kMaxIntermediate);
  moe.normalize = fields.BoolOr("moe_renormalize", true);
  moe.scale =
      static_cast<float>(fields.NumberOr("routed_scaling_factor", 1, 1e-6, ModelSpec::kMaxScale));
  if (fields.BoolOr("use_grouped_topk", true)) {
    moe.groups = fields.IntOr("num_expert_group", 1, 1, ModelSpec::kMaxExperts);
    moe.groups_per_token = fields.IntOr("topk_group", 1, 1, ModelSpec::kMaxExperts);
  }
  moe.shared_intermediate =
      SizeOfShared(fields.IntOr("num_shared_experts", 0, 0, ModelSpec::kMaxExperts), moe);
  const int32_t dense = fields.IntOr("first_k_dense_replace", 0, 0, kMaxLayers);
  const int32_t interval = fields.IntOr("moe_layer_freq", 1, 1, kMaxLayers);
  for (int32_t i = dense; i < spec.layer_count(); ++i) spec.layers[i].moe = i % interval == 0;
  BATON_RETURN_IF_ERROR(fields.status());
  return ReadMlpKinds(fields, spec);
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

// Llama 4: the sigmoid of a chosen expert's logit multiplies its input. Every interval of layers
// ends with one with experts, unless they are listed. Dense layers have a size of their own.
Status ReadLlama4(JsonFields& fields, ModelSpec& spec) {
  MoeSpec& moe = spec.moe;
  moe.intermediate = moe.shared_intermediate = spec.intermediate;
  moe.score = RouterScore::kSigmoidOfLogits;
  moe.normalize = false;
  moe.weighted_inputs = true;
  const int32_t step = fields.IntOr("interleave_moe_layer_step", 1, 1, kMaxLayers);
  const std::vector<int32_t> listed = fields.IntsOr("moe_layers", 0, kMaxLayers);
  for (int32_t i = 0; i < spec.layer_count(); ++i) {
    spec.layers[i].moe = fields.Has("moe_layers") ? std::ranges::find(listed, i) != listed.end()
                                                  : (i + 1) % step == 0;
  }
  const int32_t dense =
      fields.IntOr("intermediate_size_mlp", 16384, 1, ModelSpec::kMaxIntermediate);
  spec.intermediate = std::ranges::all_of(spec.layers, &LayerSpec::moe) ? 0 : dense;
  return fields.status();
}

// ERNIE 4.5: a bias that only selects is added to softmax scores. Of a range of layers, every
// `moe_layer_interval`-th layer of the model has experts.
Status ReadErnie(JsonFields& fields, ModelSpec& spec) {
  MoeSpec& moe = spec.moe;
  moe.intermediate = fields.Int("moe_intermediate_size", 1, ModelSpec::kMaxIntermediate);
  moe.selection_bias = true;
  moe.least_sum = static_cast<float>(fields.NumberOr("moe_norm_min", 1e-12, 0, 1));
  moe.shared_intermediate =
      SizeOfShared(fields.IntOr("moe_num_shared_experts", 2, 0, ModelSpec::kMaxExperts), moe);
  const int32_t first = fields.IntOr("moe_layer_start_index", 1, 0, kMaxLayers);
  const int32_t last = fields.IntOr("moe_layer_end_index", -1, -1, kMaxLayers);
  const int32_t step = fields.IntOr("moe_layer_interval", 1, 1, kMaxLayers);
  for (int32_t i = first; i < spec.layer_count(); ++i) {
    spec.layers[i].moe = (i + 1) % step == 0 && (last == -1 || i <= last);
  }
  return fields.status();
}

}  // namespace

bool MayHaveExperts(const ModelSpec& spec) {
  switch (spec.family) {
    case ModelFamily::kNemotronH:
    case ModelFamily::kJamba:
      return std::ranges::any_of(spec.layers, &LayerSpec::moe);
    case ModelFamily::kKimiLinear:
    case ModelFamily::kMixtral:
    case ModelFamily::kGraniteMoe:
    case ModelFamily::kQwen2Moe:
    case ModelFamily::kQwen3Moe:
    case ModelFamily::kQwen3Next:
    case ModelFamily::kQwen35Moe:
    case ModelFamily::kDots1:
    case ModelFamily::kGlm4Moe:
    case ModelFamily::kMiniMaxM2:
    case ModelFamily::kGptOss:
    case ModelFamily::kLlama4:
    case ModelFamily::kDeepSeekV2:
    case ModelFamily::kDeepSeekV3:
    case ModelFamily::kDeepSeekV32:
    case ModelFamily::kErnieMoe:
    case ModelFamily::kHunyuanMoe:
      return true;
    default:
      return false;
  }
}

Status ReadExperts(JsonFields& fields, ModelSpec& spec) {
  spec.moe.experts = ReadCount(KeyOfExperts(fields, spec.family), spec.family, fields);
  spec.moe.experts_per_token = ReadCount(KeyOfChosen(spec.family), spec.family, fields);
  switch (spec.family) {
    case ModelFamily::kMiniMaxM2:
      return ReadMiniMax(fields, spec);
    case ModelFamily::kQwen2Moe:
    case ModelFamily::kQwen3Moe:
    case ModelFamily::kQwen3Next:
    case ModelFamily::kQwen35Moe:
      return ReadQwen(fields, spec);
    case ModelFamily::kDots1:
    case ModelFamily::kGlm4Moe:
    case ModelFamily::kDeepSeekV2:
    case ModelFamily::kDeepSeekV3:
    case ModelFamily::kDeepSeekV32:
      return ReadDeepSeek(fields, spec);
    case ModelFamily::kGptOss:
      return ReadGptOss(fields, spec);
    case ModelFamily::kLlama4:
      return ReadLlama4(fields, spec);
    case ModelFamily::kErnieMoe:
      return ReadErnie(fields, spec);
    case ModelFamily::kNemotronH:
      return ReadNemotronH(fields, spec);
    case ModelFamily::kKimiLinear:
      return ReadKimi(fields, spec);
    case ModelFamily::kJamba:
      spec.moe.intermediate = spec.intermediate;
      spec.moe.normalize = false;
      return fields.status();
    case ModelFamily::kHunyuanMoe:
      spec.moe.shared_intermediate = spec.intermediate;
      MakeAllLayersExperts(spec);
      return fields.status();
    default:
      MakeAllLayersExperts(spec);
      return fields.status();
  }
}

}  // namespace baton
