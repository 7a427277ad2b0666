#include "common/model/weight_names.h"

#include <iterator>

#include <fmt/format.h>

#include "common/base/check.h"

namespace baton {
namespace {

// Order of WeightKind. "{0}" is the layer, "{1}" the expert.
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

}  // namespace

TensorName NameOf(const WeightId& id, NamingScheme scheme) {
  const auto kind = static_cast<size_t>(id.kind);
  BATON_CHECK(kind < std::size(kNames), "weight kind {}", kind);
  const bool gguf = scheme == NamingScheme::kGguf;
  const std::string_view pattern = gguf ? kNames[kind].gguf : kNames[kind].hugging_face;
  TensorName name;
  name.tensor = fmt::format(fmt::runtime(pattern), id.layer, id.expert);
  name.stacked = gguf && id.kind >= WeightKind::kExpertGate;
  return name;
}

}  // namespace baton
