#include "common/model/weight_names.h"

#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "common/model/usual_names.h"
#include "common/model/weight_prefixes.h"

namespace baton {
namespace {

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
constexpr auto kExpertsGateUp = OwnName::Joined::kExpertsGateUp;
constexpr auto kExpertsGateUpColumns = OwnName::Joined::kExpertsGateUpColumns;

constexpr auto kExpertsGateUpHalves = OwnName::Joined::kExpertsGateUpHalves;

constexpr std::string_view kLlama4GateUp = "model.layers.{0}.feed_forward.experts.gate_up_proj";
constexpr std::string_view kQwen35GateUp = "model.layers.{0}.mlp.experts.gate_up_proj";
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
    {NamingScheme::kGgufGptNeox, WeightKind::kQuery, "blk.{0}.attn_qkv.weight", kQkv},
    {NamingScheme::kGgufGptNeox, WeightKind::kKey, "blk.{0}.attn_qkv.weight", kQkv},
    {NamingScheme::kGgufGptNeox, WeightKind::kValue, "blk.{0}.attn_qkv.weight", kQkv},
    {NamingScheme::kGgufGptNeox, WeightKind::kQueryBias, "blk.{0}.attn_qkv.bias", kQkv},
    {NamingScheme::kGgufGptNeox, WeightKind::kKeyBias, "blk.{0}.attn_qkv.bias", kQkv},
    {NamingScheme::kGgufGptNeox, WeightKind::kValueBias, "blk.{0}.attn_qkv.bias", kQkv},
    {NamingScheme::kGgufSeed, WeightKind::kFeedForwardNorm, "blk.{0}.post_attention_norm.weight"},
    {NamingScheme::kGgufQwen3Next,
     WeightKind::kFeedForwardNorm,
     "blk.{0}.post_attention_norm.weight"},
    {NamingScheme::kGgufFalconH1, WeightKind::kFeedForwardNorm, "blk.{0}.ffn_norm"},
    {NamingScheme::kGgufNemotronH, WeightKind::kFeedForwardNorm, "blk.{0}.attn_norm.weight"},
    {NamingScheme::kGgufJamba, WeightKind::kRecurrentTimeDown, "blk.{0}.ssm_x.weight"},
    {NamingScheme::kGgufJamba, WeightKind::kRecurrentTimeUp, "blk.{0}.ssm_dt.weight"},
    {NamingScheme::kGgufKimiLinear,
     WeightKind::kRecurrentConvolution,
     "blk.{0}.ssm_conv1d_q.weight"},
    {NamingScheme::kGgufKimiLinear, WeightKind::kRecurrentOutput, "blk.{0}.attn_output.weight"},
    {NamingScheme::kGgufQwen3Next, WeightKind::kRecurrentInput, "blk.{0}.attn_qkv.weight"},
    {NamingScheme::kGgufQwen3Next, WeightKind::kQuery, "blk.{0}.attn_q.weight", kQueryGateByHead},
    {NamingScheme::kGgufQwen3Next,
     WeightKind::kQueryGate,
     "blk.{0}.attn_q.weight",
     kQueryGateByHead},
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
    {NamingScheme::kQwen35, WeightKind::kSharedGate, kSharedGateWeight},
    {NamingScheme::kQwen35, WeightKind::kSharedUp, kSharedUpWeight},
    {NamingScheme::kQwen35, WeightKind::kSharedDown, kSharedDownWeight},
    {NamingScheme::kQwen35, WeightKind::kQuery, kQueryWeight, kQueryGateByHead},
    {NamingScheme::kQwen35, WeightKind::kQueryGate, kQueryWeight, kQueryGateByHead},
    {NamingScheme::kQwen35,
     WeightKind::kRecurrentInput,
     "model.layers.{0}.linear_attn.in_proj_qkv.weight"},
    {NamingScheme::kQwen35,
     WeightKind::kRecurrentBeta,
     "model.layers.{0}.linear_attn.in_proj_b.weight"},
    {NamingScheme::kQwen35, WeightKind::kExpertGate, kQwen35GateUp, kExpertsGateUp},
    {NamingScheme::kQwen35, WeightKind::kExpertUp, kQwen35GateUp, kExpertsGateUp},
    {NamingScheme::kQwen35,
     WeightKind::kExpertDown,
     "model.layers.{0}.mlp.experts.down_proj",
     OwnName::Joined::kExperts},
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
  const bool gguf = IsGguf(scheme);
  const bool stacked = gguf && kind >= WeightKind::kExpertGate;
  return {scheme,
          kind,
          UsualPattern(kind, gguf),
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
    const bool query = kind == WeightKind::kQuery || kind == WeightKind::kQueryBias;
    const bool value = kind == WeightKind::kValue || kind == WeightKind::kValueBias;
    name.parts = naming.heads + 2 * naming.kv_heads;
    name.size = query ? naming.heads : naming.kv_heads;
    if (!query) name.part = naming.heads;
    if (value) name.part += naming.kv_heads;
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
      case ModelFamily::kQwen35:
      case ModelFamily::kQwen35Moe:
        return NamingScheme::kQwen35;
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
  const bool qwen = scheme == NamingScheme::kQwen3Next || scheme == NamingScheme::kQwen35;
  if (scheme != NamingScheme::kGemma && !qwen) return false;
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

std::string NameBesideImages(const std::string& name, NamingScheme scheme) {
  constexpr std::string_view kModel = "model.";
  if (scheme == NamingScheme::kLlama4) return "language_model." + name;
  if (scheme != NamingScheme::kQwen35 || !name.starts_with(kModel)) return name;
  return "model.language_model." + name.substr(kModel.size());
}

Naming GgufNames(const ModelSpec& spec) {
  switch (spec.family) {
    case ModelFamily::kGlm4:
      return {NamingScheme::kGgufGateUp, spec};
    case ModelFamily::kPhi3:
      return {NamingScheme::kGgufPhi3, spec};
    case ModelFamily::kSeedOss:
    case ModelFamily::kGptOss:
    case ModelFamily::kGlm4Moe:
      return {NamingScheme::kGgufSeed, spec};
    case ModelFamily::kGptNeox:
      return {NamingScheme::kGgufGptNeox, spec};
    case ModelFamily::kQwen3Next:
    case ModelFamily::kQwen35:
    case ModelFamily::kQwen35Moe:
      return {NamingScheme::kGgufQwen3Next, spec};
    case ModelFamily::kFalconH1:
      return {NamingScheme::kGgufFalconH1, spec};
    case ModelFamily::kNemotronH:
      return {NamingScheme::kGgufNemotronH, spec};
    case ModelFamily::kJamba:
      return {NamingScheme::kGgufJamba, spec};
    case ModelFamily::kKimiLinear:
      return {NamingScheme::kGgufKimiLinear, spec};
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
  // transformers writes the experts of Qwen 3.5 one by one.
  if (naming.scheme == NamingScheme::kQwen35 && name.stacked) {
    name.slice = fill(UsualPattern(id.kind, /*gguf=*/false));
  }
  return name;
}

}  // namespace baton
