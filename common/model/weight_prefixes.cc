#include "common/model/weight_prefixes.h"

namespace baton {
namespace {

struct Prefix {
  NamingScheme scheme;
  std::string_view usual;
  std::string_view own;
};

// The first one that fits holds.
constexpr Prefix kPrefixes[] = {
    {NamingScheme::kBackbone, "model.embed_tokens.", "backbone.embeddings."},
    {NamingScheme::kBackbone, "model.norm.", "backbone.norm_f."},
    // A layer is one block, which has one norm.
    {NamingScheme::kBackbone, "model.layers.{0}.input_layernorm.", "backbone.layers.{0}.norm."},
    {NamingScheme::kBackbone,
     "model.layers.{0}.post_attention_layernorm.",
     "backbone.layers.{0}.norm."},
    {NamingScheme::kBackbone,
     "model.layers.{0}.linear_attn.in_proj_qkvz.",
     "backbone.layers.{0}.mixer.in_proj."},
    {NamingScheme::kBackbone, "model.layers.{0}.linear_attn.", "backbone.layers.{0}.mixer."},
    {NamingScheme::kBackbone, "model.layers.{0}.self_attn.", "backbone.layers.{0}.mixer."},
    {NamingScheme::kBackbone, "model.layers.{0}.mlp.", "backbone.layers.{0}.mixer."},

    {NamingScheme::kFalconH1, "model.norm.", "model.final_layernorm."},
    {NamingScheme::kFalconH1,
     "model.layers.{0}.post_attention_layernorm.",
     "model.layers.{0}.pre_ff_layernorm."},
    {NamingScheme::kFalconH1,
     "model.layers.{0}.linear_attn.in_proj_qkvz.",
     "model.layers.{0}.mamba.in_proj."},
    {NamingScheme::kFalconH1, "model.layers.{0}.linear_attn.", "model.layers.{0}.mamba."},
    {NamingScheme::kFalconH1, "model.layers.{0}.mlp.", "model.layers.{0}.feed_forward."},

    {NamingScheme::kJamba, "model.norm.", "model.final_layernorm."},
    {NamingScheme::kJamba,
     "model.layers.{0}.post_attention_layernorm.",
     "model.layers.{0}.pre_ff_layernorm."},
    {NamingScheme::kJamba,
     "model.layers.{0}.linear_attn.in_proj_qkvz.",
     "model.layers.{0}.mamba.in_proj."},
    {NamingScheme::kJamba,
     "model.layers.{0}.linear_attn.f_a_proj.",
     "model.layers.{0}.mamba.x_proj."},
    {NamingScheme::kJamba,
     "model.layers.{0}.linear_attn.f_b_proj.",
     "model.layers.{0}.mamba.dt_proj."},
    {NamingScheme::kJamba,
     "model.layers.{0}.linear_attn.dt_bias",
     "model.layers.{0}.mamba.dt_proj.bias"},
    {NamingScheme::kJamba, "model.layers.{0}.linear_attn.", "model.layers.{0}.mamba."},
    {NamingScheme::kJamba, "model.layers.{0}.mlp.gate.", "model.layers.{0}.feed_forward.router."},
    {NamingScheme::kJamba, "model.layers.{0}.mlp.", "model.layers.{0}.feed_forward."},

    {NamingScheme::kKimiLinear,
     "model.layers.{0}.linear_attn.conv1d.",
     "model.layers.{0}.self_attn.q_conv1d."},
    {NamingScheme::kKimiLinear,
     "model.layers.{0}.linear_attn.norm.",
     "model.layers.{0}.self_attn.o_norm."},
    {NamingScheme::kKimiLinear,
     "model.layers.{0}.linear_attn.out_proj.",
     "model.layers.{0}.self_attn.o_proj."},
    {NamingScheme::kKimiLinear, "model.layers.{0}.linear_attn.", "model.layers.{0}.self_attn."},
    // Dense layers have the usual names.
    {NamingScheme::kKimiLinear,
     "model.layers.{0}.mlp.gate.",
     "model.layers.{0}.block_sparse_moe.gate."},
    {NamingScheme::kKimiLinear,
     "model.layers.{0}.mlp.shared_experts.",
     "model.layers.{0}.block_sparse_moe.shared_experts."},
    {NamingScheme::kKimiLinear,
     "model.layers.{0}.mlp.experts.{1}.gate_proj.",
     "model.layers.{0}.block_sparse_moe.experts.{1}.w1."},
    {NamingScheme::kKimiLinear,
     "model.layers.{0}.mlp.experts.{1}.up_proj.",
     "model.layers.{0}.block_sparse_moe.experts.{1}.w3."},
    {NamingScheme::kKimiLinear,
     "model.layers.{0}.mlp.experts.{1}.down_proj.",
     "model.layers.{0}.block_sparse_moe.experts.{1}.w2."},
};

}  // namespace

std::string WithPrefixOf(NamingScheme scheme, std::string_view pattern) {
  for (const Prefix& prefix : kPrefixes) {
    if (prefix.scheme != scheme || !pattern.starts_with(prefix.usual)) continue;
    return std::string(prefix.own) + std::string(pattern.substr(prefix.usual.size()));
  }
  return std::string(pattern);
}

}  // namespace baton
