#include "common/model/weight_names.h"

#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/model/weight_prefixes.h"

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

// A name that a scheme has in place of that of Hugging Face or GGUF.
struct OwnName {
  // What the tensor holds besides the weight, one behind the other; …ByHead: head by head;
  // kExpertsColumns: of each expert [inputs][outputs]; kExpertsGateUpColumns: of gate and up in
  // turn; kExpertsGateUpHalves: the columns of gate before those of up.
  enum class Joined : uint8_t {
    kNothing,
    kGateUp,
    kQkv,
    kQkvByHead,
    kQueryGateByHead,
    kExperts,  // from here on, a tensor has all experts
    kExpertsGateUp,
    kExpertsColumns,
    kExpertsGateUpColumns,
    kExpertsGateUpHalves,
  };

  constexpr OwnName(NamingScheme of,
                    WeightKind weight,
                    std::string_view pattern,
                    Joined with = Joined::kNothing)
      : name(pattern), scheme(of), kind(weight), joined(with) {}

  std::string_view name;
  NamingScheme scheme;
  WeightKind kind;
  Joined joined;
};

constexpr auto kQkv = OwnName::Joined::kQkv;
constexpr auto kQkvByHead = OwnName::Joined::kQkvByHead;
constexpr auto kQueryGateByHead = OwnName::Joined::kQueryGateByHead;
constexpr auto kGateUp = OwnName::Joined::kGateUp;
constexpr auto kExpertsGateUpColumns = OwnName::Joined::kExpertsGateUpColumns;

constexpr auto kExpertsGateUpHalves = OwnName::Joined::kExpertsGateUpHalves;

constexpr std::string_view kLlama4GateUp = "model.layers.{0}.feed_forward.experts.gate_up_proj";
constexpr std::string_view kGptOssGateUp = "model.layers.{0}.mlp.experts.gate_up_proj";
constexpr std::string_view kGptOssGateUpBias = "model.layers.{0}.mlp.experts.gate_up_proj_bias";
constexpr std::string_view kNeoxQkvWeight = "gpt_neox.layers.{0}.attention.query_key_value.weight";
constexpr std::string_view kNeoxQkvBias = "gpt_neox.layers.{0}.attention.query_key_value.bias";

constexpr std::string_view kQueryWeight = "model.layers.{0}.self_attn.q_proj.weight";
constexpr std::string_view kSharedGateWeight =
    "model.layers.{0}.mlp.shared_expert.gate_proj.weight";
constexpr std::string_view kSharedUpWeight = "model.layers.{0}.mlp.shared_expert.up_proj.weight";
constexpr std::string_view kSharedDownWeight =
    "model.layers.{0}.mlp.shared_expert.down_proj.weight";

constexpr OwnName kOwnNames[] = {
    {NamingScheme::kMixtral, WeightKind::kRouter, "model.layers.{0}.block_sparse_moe.gate.weight"},
    {NamingScheme::kMixtral,
     WeightKind::kExpertGate,
     "model.layers.{0}.block_sparse_moe.experts.{1}.w1.weight"},
    {NamingScheme::kMixtral,
     WeightKind::kExpertUp,
     "model.layers.{0}.block_sparse_moe.experts.{1}.w3.weight"},
    {NamingScheme::kMixtral,
     WeightKind::kExpertDown,
     "model.layers.{0}.block_sparse_moe.experts.{1}.w2.weight"},
    {NamingScheme::kMiniMax, WeightKind::kRouter, "model.layers.{0}.block_sparse_moe.gate.weight"},
    {NamingScheme::kMiniMax,
     WeightKind::kSelectionBias,
     "model.layers.{0}.block_sparse_moe.e_score_correction_bias"},
    {NamingScheme::kMiniMax,
     WeightKind::kExpertGate,
     "model.layers.{0}.block_sparse_moe.experts.{1}.w1.weight"},
    {NamingScheme::kMiniMax,
     WeightKind::kExpertUp,
     "model.layers.{0}.block_sparse_moe.experts.{1}.w3.weight"},
    {NamingScheme::kMiniMax,
     WeightKind::kExpertDown,
     "model.layers.{0}.block_sparse_moe.experts.{1}.w2.weight"},
    {NamingScheme::kGateUp, WeightKind::kGate, "model.layers.{0}.mlp.gate_up_proj.weight", kGateUp},
    {NamingScheme::kGateUp, WeightKind::kUp, "model.layers.{0}.mlp.gate_up_proj.weight", kGateUp},
    {NamingScheme::kGgufGateUp, WeightKind::kGate, "blk.{0}.ffn_up.weight", kGateUp},
    {NamingScheme::kGgufGateUp, WeightKind::kUp, "blk.{0}.ffn_up.weight", kGateUp},
    {NamingScheme::kGgufPhi3, WeightKind::kGate, "blk.{0}.ffn_up.weight", kGateUp},
    {NamingScheme::kGgufPhi3, WeightKind::kUp, "blk.{0}.ffn_up.weight", kGateUp},
    {NamingScheme::kGgufPhi3, WeightKind::kQuery, "blk.{0}.attn_qkv.weight", kQkv},
    {NamingScheme::kGgufPhi3, WeightKind::kKey, "blk.{0}.attn_qkv.weight", kQkv},
    {NamingScheme::kGgufPhi3, WeightKind::kValue, "blk.{0}.attn_qkv.weight", kQkv},
    {NamingScheme::kGgufSeed, WeightKind::kFeedForwardNorm, "blk.{0}.post_attention_norm.weight"},
    {NamingScheme::kPostNorm,
     WeightKind::kAttentionPostNorm,
     "model.layers.{0}.post_attention_layernorm.weight"},
    {NamingScheme::kPostNorm,
     WeightKind::kFeedForwardPostNorm,
     "model.layers.{0}.post_feedforward_layernorm.weight"},
    {NamingScheme::kGemma,
     WeightKind::kAttentionPostNorm,
     "model.layers.{0}.post_attention_layernorm.weight"},
    {NamingScheme::kGemma,
     WeightKind::kFeedForwardNorm,
     "model.layers.{0}.pre_feedforward_layernorm.weight"},
    {NamingScheme::kGemma,
     WeightKind::kFeedForwardPostNorm,
     "model.layers.{0}.post_feedforward_layernorm.weight"},
    {NamingScheme::kGraniteMoe,
     WeightKind::kRouter,
     "model.layers.{0}.block_sparse_moe.router.layer.weight"},
    {NamingScheme::kGraniteMoe,
     WeightKind::kExpertGate,
     "model.layers.{0}.block_sparse_moe.input_linear.weight",
     OwnName::Joined::kExpertsGateUp},
    {NamingScheme::kGraniteMoe,
     WeightKind::kExpertUp,
     "model.layers.{0}.block_sparse_moe.input_linear.weight",
     OwnName::Joined::kExpertsGateUp},
    {NamingScheme::kGraniteMoe,
     WeightKind::kExpertDown,
     "model.layers.{0}.block_sparse_moe.output_linear.weight",
     OwnName::Joined::kExperts},
    {NamingScheme::kPhi3, WeightKind::kGate, "model.layers.{0}.mlp.gate_up_proj.weight", kGateUp},
    {NamingScheme::kPhi3, WeightKind::kUp, "model.layers.{0}.mlp.gate_up_proj.weight", kGateUp},
    {NamingScheme::kPhi3, WeightKind::kQuery, "model.layers.{0}.self_attn.qkv_proj.weight", kQkv},
    {NamingScheme::kPhi3, WeightKind::kKey, "model.layers.{0}.self_attn.qkv_proj.weight", kQkv},
    {NamingScheme::kPhi3, WeightKind::kValue, "model.layers.{0}.self_attn.qkv_proj.weight", kQkv},
    {NamingScheme::kQwen2Moe, WeightKind::kSharedGate, kSharedGateWeight},
    {NamingScheme::kQwen2Moe, WeightKind::kSharedUp, kSharedUpWeight},
    {NamingScheme::kQwen2Moe, WeightKind::kSharedDown, kSharedDownWeight},
    {NamingScheme::kQwen3Next, WeightKind::kSharedGate, kSharedGateWeight},
    {NamingScheme::kQwen3Next, WeightKind::kSharedUp, kSharedUpWeight},
    {NamingScheme::kQwen3Next, WeightKind::kSharedDown, kSharedDownWeight},
    {NamingScheme::kQwen3Next, WeightKind::kQuery, kQueryWeight, kQueryGateByHead},
    {NamingScheme::kQwen3Next, WeightKind::kQueryGate, kQueryWeight, kQueryGateByHead},
    {NamingScheme::kHunyuan,
     WeightKind::kQueryNorm,
     "model.layers.{0}.self_attn.query_layernorm.weight"},
    {NamingScheme::kHunyuan,
     WeightKind::kKeyNorm,
     "model.layers.{0}.self_attn.key_layernorm.weight"},
    {NamingScheme::kHunyuan, WeightKind::kRouter, "model.layers.{0}.mlp.gate.wg.weight"},
    {NamingScheme::kHunyuan,
     WeightKind::kSharedGate,
     "model.layers.{0}.mlp.shared_mlp.gate_proj.weight"},
    {NamingScheme::kHunyuan,
     WeightKind::kSharedUp,
     "model.layers.{0}.mlp.shared_mlp.up_proj.weight"},
    {NamingScheme::kHunyuan,
     WeightKind::kSharedDown,
     "model.layers.{0}.mlp.shared_mlp.down_proj.weight"},
    {NamingScheme::kGptOss, WeightKind::kRouter, "model.layers.{0}.mlp.router.weight"},
    {NamingScheme::kGptOss, WeightKind::kRouterBias, "model.layers.{0}.mlp.router.bias"},
    {NamingScheme::kGptOss, WeightKind::kExpertGate, kGptOssGateUp, kExpertsGateUpColumns},
    {NamingScheme::kGptOss, WeightKind::kExpertUp, kGptOssGateUp, kExpertsGateUpColumns},
    {NamingScheme::kGptOss,
     WeightKind::kExpertDown,
     "model.layers.{0}.mlp.experts.down_proj",
     OwnName::Joined::kExpertsColumns},
    {NamingScheme::kGptOss, WeightKind::kExpertGateBias, kGptOssGateUpBias, kExpertsGateUpColumns},
    {NamingScheme::kGptOss, WeightKind::kExpertUpBias, kGptOssGateUpBias, kExpertsGateUpColumns},
    {NamingScheme::kGptOss,
     WeightKind::kExpertDownBias,
     "model.layers.{0}.mlp.experts.down_proj_bias",
     OwnName::Joined::kExperts},
    {NamingScheme::kLlama4, WeightKind::kGate, "model.layers.{0}.feed_forward.gate_proj.weight"},
    {NamingScheme::kLlama4, WeightKind::kUp, "model.layers.{0}.feed_forward.up_proj.weight"},
    {NamingScheme::kLlama4, WeightKind::kDown, "model.layers.{0}.feed_forward.down_proj.weight"},
    {NamingScheme::kLlama4, WeightKind::kRouter, "model.layers.{0}.feed_forward.router.weight"},
    {NamingScheme::kLlama4,
     WeightKind::kSharedGate,
     "model.layers.{0}.feed_forward.shared_expert.gate_proj.weight"},
    {NamingScheme::kLlama4,
     WeightKind::kSharedUp,
     "model.layers.{0}.feed_forward.shared_expert.up_proj.weight"},
    {NamingScheme::kLlama4,
     WeightKind::kSharedDown,
     "model.layers.{0}.feed_forward.shared_expert.down_proj.weight"},
    {NamingScheme::kLlama4, WeightKind::kExpertGate, kLlama4GateUp, kExpertsGateUpHalves},
    {NamingScheme::kLlama4, WeightKind::kExpertUp, kLlama4GateUp, kExpertsGateUpHalves},
    {NamingScheme::kLlama4,
     WeightKind::kExpertDown,
     "model.layers.{0}.feed_forward.experts.down_proj",
     OwnName::Joined::kExpertsColumns},
    {NamingScheme::kErnie,
     WeightKind::kSelectionBias,
     "model.layers.{0}.mlp.moe_statics.e_score_correction_bias"},
    {NamingScheme::kPhi, WeightKind::kOutputNorm, "model.final_layernorm.weight"},
    {NamingScheme::kPhi, WeightKind::kOutputNormBias, "model.final_layernorm.bias"},
    {NamingScheme::kPhi, WeightKind::kAttentionOutput, "model.layers.{0}.self_attn.dense.weight"},
    {NamingScheme::kPhi, WeightKind::kAttentionOutputBias, "model.layers.{0}.self_attn.dense.bias"},
    {NamingScheme::kPhi, WeightKind::kUp, "model.layers.{0}.mlp.fc1.weight"},
    {NamingScheme::kPhi, WeightKind::kUpBias, "model.layers.{0}.mlp.fc1.bias"},
    {NamingScheme::kPhi, WeightKind::kDown, "model.layers.{0}.mlp.fc2.weight"},
    {NamingScheme::kPhi, WeightKind::kDownBias, "model.layers.{0}.mlp.fc2.bias"},
    {NamingScheme::kGptNeox, WeightKind::kEmbedding, "gpt_neox.embed_in.weight"},
    {NamingScheme::kGptNeox, WeightKind::kOutputNorm, "gpt_neox.final_layer_norm.weight"},
    {NamingScheme::kGptNeox, WeightKind::kOutputNormBias, "gpt_neox.final_layer_norm.bias"},
    {NamingScheme::kGptNeox, WeightKind::kHead, "embed_out.weight"},
    {NamingScheme::kGptNeox,
     WeightKind::kAttentionNorm,
     "gpt_neox.layers.{0}.input_layernorm.weight"},
    {NamingScheme::kGptNeox,
     WeightKind::kAttentionNormBias,
     "gpt_neox.layers.{0}.input_layernorm.bias"},
    {NamingScheme::kGptNeox, WeightKind::kQuery, kNeoxQkvWeight, kQkvByHead},
    {NamingScheme::kGptNeox, WeightKind::kKey, kNeoxQkvWeight, kQkvByHead},
    {NamingScheme::kGptNeox, WeightKind::kValue, kNeoxQkvWeight, kQkvByHead},
    {NamingScheme::kGptNeox, WeightKind::kQueryBias, kNeoxQkvBias, kQkvByHead},
    {NamingScheme::kGptNeox, WeightKind::kKeyBias, kNeoxQkvBias, kQkvByHead},
    {NamingScheme::kGptNeox, WeightKind::kValueBias, kNeoxQkvBias, kQkvByHead},
    {NamingScheme::kGptNeox,
     WeightKind::kAttentionOutput,
     "gpt_neox.layers.{0}.attention.dense.weight"},
    {NamingScheme::kGptNeox,
     WeightKind::kAttentionOutputBias,
     "gpt_neox.layers.{0}.attention.dense.bias"},
    {NamingScheme::kGptNeox,
     WeightKind::kFeedForwardNorm,
     "gpt_neox.layers.{0}.post_attention_layernorm.weight"},
    {NamingScheme::kGptNeox,
     WeightKind::kFeedForwardNormBias,
     "gpt_neox.layers.{0}.post_attention_layernorm.bias"},
    {NamingScheme::kGptNeox, WeightKind::kUp, "gpt_neox.layers.{0}.mlp.dense_h_to_4h.weight"},
    {NamingScheme::kGptNeox, WeightKind::kUpBias, "gpt_neox.layers.{0}.mlp.dense_h_to_4h.bias"},
    {NamingScheme::kGptNeox, WeightKind::kDown, "gpt_neox.layers.{0}.mlp.dense_4h_to_h.weight"},
    {NamingScheme::kGptNeox, WeightKind::kDownBias, "gpt_neox.layers.{0}.mlp.dense_4h_to_h.bias"},
};

// In the order of WeightKind, from kExpertGate on. Older files have no biases of experts.
constexpr std::string_view kGgufSlices[] = {
    "blk.{0}.ffn_gate.{1}.weight",
    "blk.{0}.ffn_up.{1}.weight",
    "blk.{0}.ffn_down.{1}.weight",
};

OwnName FindName(WeightKind kind, NamingScheme scheme) {
  for (const OwnName& own : kOwnNames) {
    if (own.scheme == scheme && own.kind == kind) return own;
  }
  const auto index = static_cast<size_t>(kind);
  BATON_CHECK(index < std::size(kNames), "weight kind {}", index);
  const bool gguf = IsGguf(scheme);
  const bool stacked = gguf && kind >= WeightKind::kExpertGate;
  return {scheme,
          kind,
          gguf ? kNames[index].gguf : kNames[index].hugging_face,
          stacked ? OwnName::Joined::kExperts : OwnName::Joined::kNothing};
}

// Sets the parts of the rows of the tensor that the weight has.
void SetParts(OwnName::Joined joined, WeightKind kind, const Naming& naming, TensorName& name) {
  using enum OwnName::Joined;
  if (joined == kExpertsColumns || joined == kExpertsGateUpColumns) name.order = RowOrder::kColumns;
  if (joined == kExpertsGateUpHalves) name.order = RowOrder::kColumnParts;
  if (joined == kGateUp || joined == kExpertsGateUp || joined == kExpertsGateUpColumns ||
      joined == kExpertsGateUpHalves) {
    const bool gate = kind == WeightKind::kGate || kind == WeightKind::kExpertGate ||
                      kind == WeightKind::kExpertGateBias;
    name.part = gate ? 0 : 1;
    name.parts = 2;
  } else if (joined == kQkv) {
    name.parts = naming.heads + 2 * naming.kv_heads;
    name.size = kind == WeightKind::kQuery ? naming.heads : naming.kv_heads;
    if (kind != WeightKind::kQuery) name.part = naming.heads;
    if (kind == WeightKind::kValue) name.part += naming.kv_heads;
  } else if (joined == kQkvByHead) {
    name.parts = 3;
    name.order = RowOrder::kHeadByHead;
    if (kind == WeightKind::kKey || kind == WeightKind::kKeyBias) name.part = 1;
    if (kind == WeightKind::kValue || kind == WeightKind::kValueBias) name.part = 2;
  } else if (joined == kQueryGateByHead) {
    name.parts = 2;
    name.order = RowOrder::kHeadByHead;
    name.part = kind == WeightKind::kQuery ? 0 : 1;
  }
}

}  // namespace

Naming HuggingFaceNames(const ModelSpec& spec) {
  const auto scheme = [&spec] {
    switch (spec.family) {
      case ModelFamily::kMixtral:
        return NamingScheme::kMixtral;
      case ModelFamily::kGlm4:
        return NamingScheme::kGateUp;
      case ModelFamily::kOlmo2:
      case ModelFamily::kOlmo3:
      case ModelFamily::kExaone4:
        return NamingScheme::kPostNorm;
      case ModelFamily::kGemma2:
      case ModelFamily::kGemma3:
        return NamingScheme::kGemma;
      case ModelFamily::kGraniteMoe:
        return NamingScheme::kGraniteMoe;
      case ModelFamily::kPhi3:
        return NamingScheme::kPhi3;
      case ModelFamily::kQwen2Moe:
        return NamingScheme::kQwen2Moe;
      case ModelFamily::kMiniMaxM2:
        return NamingScheme::kMiniMax;
      case ModelFamily::kHunyuan:
      case ModelFamily::kHunyuanMoe:
        return NamingScheme::kHunyuan;
      case ModelFamily::kPhi:
        return NamingScheme::kPhi;
      case ModelFamily::kGptNeox:
        return NamingScheme::kGptNeox;
      case ModelFamily::kErnieMoe:
        return NamingScheme::kErnie;
      case ModelFamily::kGptOss:
        return NamingScheme::kGptOss;
      case ModelFamily::kLlama4:
        return NamingScheme::kLlama4;
      case ModelFamily::kQwen3Next:
        return NamingScheme::kQwen3Next;
      case ModelFamily::kNemotronH:
      case ModelFamily::kMamba2:
        return NamingScheme::kBackbone;
      case ModelFamily::kFalconH1:
        return NamingScheme::kFalconH1;
      case ModelFamily::kJamba:
        return NamingScheme::kJamba;
      case ModelFamily::kKimiLinear:
        return NamingScheme::kKimiLinear;
      default:
        return NamingScheme::kHuggingFace;
    }
  };
  return {scheme(), spec};
}

bool IsLessByOne(WeightKind kind, NamingScheme scheme) {
  if (scheme != NamingScheme::kGemma && scheme != NamingScheme::kQwen3Next) return false;
  switch (kind) {
    case WeightKind::kOutputNorm:
    case WeightKind::kAttentionNorm:
    case WeightKind::kQueryNorm:
    case WeightKind::kKeyNorm:
    case WeightKind::kFeedForwardNorm:
    case WeightKind::kAttentionPostNorm:
    case WeightKind::kFeedForwardPostNorm:
      return true;
    default:
      return false;
  }
}

Naming GgufNames(const ModelSpec& spec) {
  switch (spec.family) {
    case ModelFamily::kGlm4:
      return {NamingScheme::kGgufGateUp, spec};
    case ModelFamily::kPhi3:
      return {NamingScheme::kGgufPhi3, spec};
    case ModelFamily::kSeedOss:
    case ModelFamily::kGptOss:
      return {NamingScheme::kGgufSeed, spec};
    default:
      return {NamingScheme::kGguf, spec};
  }
}

TensorName NameOf(const WeightId& id, const Naming& naming) {
  const auto fill = [&](std::string_view pattern) {
    return fmt::format(fmt::runtime(pattern), id.layer, id.expert);
  };
  const OwnName found = FindName(id.kind, naming.scheme);
  TensorName name;
  name.tensor = fill(WithPrefixOf(naming.scheme, found.name));
  name.stacked = found.joined >= OwnName::Joined::kExperts;
  SetParts(found.joined, id.kind, naming, name);
  if (IsGguf(naming.scheme) && name.stacked) {
    const auto index = static_cast<size_t>(id.kind) - static_cast<size_t>(WeightKind::kExpertGate);
    if (index < std::size(kGgufSlices)) name.slice = fill(kGgufSlices[index]);
  }
  return name;
}

}  // namespace baton
