#include "common/model/usual_names.h"

#include <cstddef>
#include <iterator>

#include "common/base/check.h"

namespace baton {
namespace {

// In the order of WeightKind.
struct Names {
  std::string_view hugging_face;
  std::string_view gguf;
};

constexpr Names kNames[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"model.norm.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"lm_head.bias", "output.bias"},
    {"rope_freqs.weight", "rope_freqs.weight"},
    {"model.layers.{0}.input_layernorm.weight", "blk.{0}.attn_norm.weight"},
    {"model.layers.{0}.input_layernorm.bias", "blk.{0}.attn_norm.bias"},
    {"model.layers.{0}.self_attn.q_proj.weight", "blk.{0}.attn_q.weight"},
    {"model.layers.{0}.self_attn.k_proj.weight", "blk.{0}.attn_k.weight"},
    {"model.layers.{0}.self_attn.v_proj.weight", "blk.{0}.attn_v.weight"},
    {"model.layers.{0}.self_attn.o_proj.weight", "blk.{0}.attn_output.weight"},
    {"model.layers.{0}.self_attn.q_proj.bias", "blk.{0}.attn_q.bias"},
    {"model.layers.{0}.self_attn.k_proj.bias", "blk.{0}.attn_k.bias"},
    {"model.layers.{0}.self_attn.v_proj.bias", "blk.{0}.attn_v.bias"},
    {"model.layers.{0}.self_attn.o_proj.bias", "blk.{0}.attn_output.bias"},
    {"model.layers.{0}.self_attn.sinks", "blk.{0}.attn_sinks.weight"},
    {"model.layers.{0}.self_attn.q_norm.weight", "blk.{0}.attn_q_norm.weight"},
    {"model.layers.{0}.self_attn.k_norm.weight", "blk.{0}.attn_k_norm.weight"},
    {"model.layers.{0}.self_attn.q_a_proj.weight", "blk.{0}.attn_q_a.weight"},
    {"model.layers.{0}.self_attn.q_a_proj.bias", "blk.{0}.attn_q_a.bias"},
    {"model.layers.{0}.self_attn.q_a_layernorm.weight", "blk.{0}.attn_q_a_norm.weight"},
    {"model.layers.{0}.self_attn.q_b_proj.weight", "blk.{0}.attn_q_b.weight"},
    {"model.layers.{0}.self_attn.kv_a_proj_with_mqa.weight", "blk.{0}.attn_kv_a_mqa.weight"},
    {"model.layers.{0}.self_attn.kv_a_proj_with_mqa.bias", "blk.{0}.attn_kv_a_mqa.bias"},
    {"model.layers.{0}.self_attn.kv_a_layernorm.weight", "blk.{0}.attn_kv_a_norm.weight"},
    {"model.layers.{0}.self_attn.kv_b_proj.weight", "blk.{0}.attn_kv_b.weight"},
    {"model.layers.{0}.self_attn.k_b_proj.weight", "blk.{0}.attn_k_b.weight"},
    {"model.layers.{0}.self_attn.v_b_proj.weight", "blk.{0}.attn_v_b.weight"},
    {"model.layers.{0}.self_attn.indexer.wq_b.weight", "blk.{0}.indexer.attn_q_b.weight"},
    {"model.layers.{0}.self_attn.indexer.wk.weight", "blk.{0}.indexer.attn_k.weight"},
    {"model.layers.{0}.self_attn.indexer.k_norm.weight", "blk.{0}.indexer.k_norm.weight"},
    {"model.layers.{0}.self_attn.indexer.k_norm.bias", "blk.{0}.indexer.k_norm.bias"},
    {"model.layers.{0}.self_attn.indexer.weights_proj.weight", "blk.{0}.indexer.proj.weight"},
    {"model.layers.{0}.self_attn.q_gate.weight", "blk.{0}.attn_q_gate.weight"},
    {"model.layers.{0}.linear_attn.in_proj_qkvz.weight", "blk.{0}.ssm_in.weight"},
    {"model.layers.{0}.linear_attn.in_proj_ba.weight", "blk.{0}.ssm_ba.weight"},
    {"model.layers.{0}.linear_attn.in_proj_z.weight", "blk.{0}.attn_gate.weight"},
    {"model.layers.{0}.linear_attn.in_proj_a.weight", "blk.{0}.ssm_alpha.weight"},
    {"model.layers.{0}.linear_attn.conv1d.weight", "blk.{0}.ssm_conv1d.weight"},
    {"model.layers.{0}.linear_attn.conv1d.bias", "blk.{0}.ssm_conv1d.bias"},
    {"model.layers.{0}.linear_attn.k_conv1d.weight", "blk.{0}.ssm_conv1d_k.weight"},
    {"model.layers.{0}.linear_attn.v_conv1d.weight", "blk.{0}.ssm_conv1d_v.weight"},
    {"model.layers.{0}.linear_attn.b_proj.weight", "blk.{0}.ssm_beta.weight"},
    {"model.layers.{0}.linear_attn.f_a_proj.weight", "blk.{0}.ssm_f_a.weight"},
    {"model.layers.{0}.linear_attn.f_b_proj.weight", "blk.{0}.ssm_f_b.weight"},
    {"model.layers.{0}.linear_attn.dt_layernorm.weight", "blk.{0}.ssm_dt_norm.weight"},
    {"model.layers.{0}.linear_attn.b_layernorm.weight", "blk.{0}.ssm_b_norm.weight"},
    {"model.layers.{0}.linear_attn.c_layernorm.weight", "blk.{0}.ssm_c_norm.weight"},
    {"model.layers.{0}.linear_attn.g_a_proj.weight", "blk.{0}.ssm_g_a.weight"},
    {"model.layers.{0}.linear_attn.g_b_proj.weight", "blk.{0}.ssm_g_b.weight"},
    {"model.layers.{0}.linear_attn.A_log", "blk.{0}.ssm_a"},
    {"model.layers.{0}.linear_attn.dt_bias", "blk.{0}.ssm_dt.bias"},
    {"model.layers.{0}.linear_attn.D", "blk.{0}.ssm_d"},
    {"model.layers.{0}.linear_attn.norm.weight", "blk.{0}.ssm_norm.weight"},
    {"model.layers.{0}.linear_attn.out_proj.weight", "blk.{0}.ssm_out.weight"},
    {"model.layers.{0}.post_attention_layernorm.weight", "blk.{0}.ffn_norm.weight"},
    {"model.layers.{0}.post_attention_layernorm.bias", "blk.{0}.ffn_norm.bias"},
    {"model.layers.{0}.post_self_attn_layernorm.weight", "blk.{0}.post_attention_norm.weight"},
    {"model.layers.{0}.post_mlp_layernorm.weight", "blk.{0}.post_ffw_norm.weight"},
    {"model.layers.{0}.mlp.gate_proj.weight", "blk.{0}.ffn_gate.weight"},
    {"model.layers.{0}.mlp.up_proj.weight", "blk.{0}.ffn_up.weight"},
    {"model.layers.{0}.mlp.down_proj.weight", "blk.{0}.ffn_down.weight"},
    {"model.layers.{0}.mlp.gate_proj.bias", "blk.{0}.ffn_gate.bias"},
    {"model.layers.{0}.mlp.up_proj.bias", "blk.{0}.ffn_up.bias"},
    {"model.layers.{0}.mlp.down_proj.bias", "blk.{0}.ffn_down.bias"},
    {"model.layers.{0}.mlp.gate.weight", "blk.{0}.ffn_gate_inp.weight"},
    {"model.layers.{0}.mlp.gate.bias", "blk.{0}.ffn_gate_inp.bias"},
    {"model.layers.{0}.mlp.gate.e_score_correction_bias", "blk.{0}.exp_probs_b.bias"},
    {"model.layers.{0}.mlp.shared_experts.gate_proj.weight", "blk.{0}.ffn_gate_shexp.weight"},
    {"model.layers.{0}.mlp.shared_experts.up_proj.weight", "blk.{0}.ffn_up_shexp.weight"},
    {"model.layers.{0}.mlp.shared_experts.down_proj.weight", "blk.{0}.ffn_down_shexp.weight"},
    {"model.layers.{0}.mlp.shared_experts.gate_proj.bias", "blk.{0}.ffn_gate_shexp.bias"},
    {"model.layers.{0}.mlp.shared_experts.up_proj.bias", "blk.{0}.ffn_up_shexp.bias"},
    {"model.layers.{0}.mlp.shared_experts.down_proj.bias", "blk.{0}.ffn_down_shexp.bias"},
    {"model.layers.{0}.mlp.shared_expert_gate.weight", "blk.{0}.ffn_gate_inp_shexp.weight"},
    {"model.layers.{0}.mlp.experts.{1}.gate_proj.weight", "blk.{0}.ffn_gate_exps.weight"},
    {"model.layers.{0}.mlp.experts.{1}.up_proj.weight", "blk.{0}.ffn_up_exps.weight"},
    {"model.layers.{0}.mlp.experts.{1}.down_proj.weight", "blk.{0}.ffn_down_exps.weight"},
    {"model.layers.{0}.mlp.experts.{1}.gate_proj.bias", "blk.{0}.ffn_gate_exps.bias"},
    {"model.layers.{0}.mlp.experts.{1}.up_proj.bias", "blk.{0}.ffn_up_exps.bias"},
    {"model.layers.{0}.mlp.experts.{1}.down_proj.bias", "blk.{0}.ffn_down_exps.bias"},
};
static_assert(std::size(kNames) == static_cast<size_t>(WeightKind::kExpertDownBias) + 1);

}  // namespace

std::string_view UsualPattern(WeightKind kind, bool gguf) {
  const auto index = static_cast<size_t>(kind);
  BATON_CHECK(index < std::size(kNames), "weight kind {}", index);
  return gguf ? kNames[index].gguf : kNames[index].hugging_face;
}

}  // namespace baton
