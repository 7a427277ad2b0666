#include "common/model/weight_names.h"

#include <iterator>

#include <fmt/format.h>

#include "common/base/check.h"

namespace baton {
namespace {

// In the order of WeightKind. "{0}" is the layer, "{1}" the expert.
struct Names {
  std::string_view hugging_face;
  std::string_view gguf;
};

constexpr Names kNames[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"rope_freqs.weight", "rope_freqs.weight"},
    {"model.layers.{0}.input_layernorm.weight", "blk.{0}.attn_norm.weight"},
    {"model.layers.{0}.self_attn.q_proj.weight", "blk.{0}.attn_q.weight"},
    {"model.layers.{0}.self_attn.k_proj.weight", "blk.{0}.attn_k.weight"},
    {"model.layers.{0}.self_attn.v_proj.weight", "blk.{0}.attn_v.weight"},
    {"model.layers.{0}.self_attn.o_proj.weight", "blk.{0}.attn_output.weight"},
    {"model.layers.{0}.self_attn.q_proj.bias", "blk.{0}.attn_q.bias"},
    {"model.layers.{0}.self_attn.k_proj.bias", "blk.{0}.attn_k.bias"},
    {"model.layers.{0}.self_attn.v_proj.bias", "blk.{0}.attn_v.bias"},
    {"model.layers.{0}.self_attn.o_proj.bias", "blk.{0}.attn_output.bias"},
    {"model.layers.{0}.self_attn.q_norm.weight", "blk.{0}.attn_q_norm.weight"},
    {"model.layers.{0}.self_attn.k_norm.weight", "blk.{0}.attn_k_norm.weight"},
    {"model.layers.{0}.post_attention_layernorm.weight", "blk.{0}.ffn_norm.weight"},
    {"model.layers.{0}.post_self_attn_layernorm.weight", "blk.{0}.post_attention_norm.weight"},
    {"model.layers.{0}.post_mlp_layernorm.weight", "blk.{0}.post_ffw_norm.weight"},
    {"model.layers.{0}.mlp.gate_proj.weight", "blk.{0}.ffn_gate.weight"},
    {"model.layers.{0}.mlp.up_proj.weight", "blk.{0}.ffn_up.weight"},
    {"model.layers.{0}.mlp.down_proj.weight", "blk.{0}.ffn_down.weight"},
    {"model.layers.{0}.mlp.gate_proj.bias", "blk.{0}.ffn_gate.bias"},
    {"model.layers.{0}.mlp.up_proj.bias", "blk.{0}.ffn_up.bias"},
    {"model.layers.{0}.mlp.down_proj.bias", "blk.{0}.ffn_down.bias"},
    {"model.layers.{0}.mlp.gate.weight", "blk.{0}.ffn_gate_inp.weight"},
    {"model.layers.{0}.mlp.experts.{1}.gate_proj.weight", "blk.{0}.ffn_gate_exps.weight"},
    {"model.layers.{0}.mlp.experts.{1}.up_proj.weight", "blk.{0}.ffn_up_exps.weight"},
    {"model.layers.{0}.mlp.experts.{1}.down_proj.weight", "blk.{0}.ffn_down_exps.weight"},
};
static_assert(std::size(kNames) == static_cast<size_t>(WeightKind::kExpertDown) + 1);

// In the order of WeightKind, from kRouter on.
constexpr std::string_view kMixtralNames[] = {
    "model.layers.{0}.block_sparse_moe.gate.weight",
    "model.layers.{0}.block_sparse_moe.experts.{1}.w1.weight",
    "model.layers.{0}.block_sparse_moe.experts.{1}.w3.weight",
    "model.layers.{0}.block_sparse_moe.experts.{1}.w2.weight",
};
static_assert(std::size(kMixtralNames) ==
              std::size(kNames) - static_cast<size_t>(WeightKind::kRouter));

constexpr Names kGateUpNames = {"model.layers.{0}.mlp.gate_up_proj.weight",
                                "blk.{0}.ffn_up.weight"};

// In the order of WeightKind, from kExpertGate on.
constexpr std::string_view kGgufSlices[] = {
    "blk.{0}.ffn_gate.{1}.weight",
    "blk.{0}.ffn_up.{1}.weight",
    "blk.{0}.ffn_down.{1}.weight",
};

std::string_view PatternOf(WeightKind kind, NamingScheme scheme) {
  const auto index = static_cast<size_t>(kind);
  BATON_CHECK(index < std::size(kNames), "weight kind {}", index);
  if (IsGguf(scheme)) return kNames[index].gguf;
  if (scheme == NamingScheme::kMixtral && kind >= WeightKind::kRouter) {
    return kMixtralNames[index - static_cast<size_t>(WeightKind::kRouter)];
  }
  return kNames[index].hugging_face;
}

}  // namespace

NamingScheme HuggingFaceNames(ModelFamily family) {
  switch (family) {
    case ModelFamily::kMixtral:
      return NamingScheme::kMixtral;
    case ModelFamily::kGlm4:
      return NamingScheme::kGateUp;
    default:
      return NamingScheme::kHuggingFace;
  }
}

NamingScheme GgufNames(ModelFamily family) {
  return family == ModelFamily::kGlm4 ? NamingScheme::kGgufGateUp : NamingScheme::kGguf;
}

TensorName NameOf(const WeightId& id, NamingScheme scheme) {
  const auto fill = [&](std::string_view pattern) {
    return fmt::format(fmt::runtime(pattern), id.layer, id.expert);
  };
  TensorName name;
  const bool joins = scheme == NamingScheme::kGateUp || scheme == NamingScheme::kGgufGateUp;
  if (joins && (id.kind == WeightKind::kGate || id.kind == WeightKind::kUp)) {
    name.tensor = fill(IsGguf(scheme) ? kGateUpNames.gguf : kGateUpNames.hugging_face);
    name.part = id.kind == WeightKind::kGate ? 0 : 1;
    name.parts = 2;
    return name;
  }
  name.tensor = fill(PatternOf(id.kind, scheme));
  name.stacked = IsGguf(scheme) && id.kind >= WeightKind::kExpertGate;
  if (name.stacked) {
    const auto first = static_cast<size_t>(WeightKind::kExpertGate);
    name.slice = fill(kGgufSlices[static_cast<size_t>(id.kind) - first]);
  }
  return name;
}

}  // namespace baton
