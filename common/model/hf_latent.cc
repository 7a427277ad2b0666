#include "common/model/hf_latent.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/hf_rope.h"

namespace baton {

bool HasLatentAttention(ModelFamily family) {
  return family == ModelFamily::kDeepSeekV2 || family == ModelFamily::kDeepSeekV3 ||
         family == ModelFamily::kDeepSeekV32 || family == ModelFamily::kKimiLinear;
}

Status ReadLatent(JsonFields& fields, ModelSpec& spec) {
  const auto head_dim = [&fields](std::string_view key, int32_t fallback) {
    return fields.IntOr(key, fallback, 1, ModelSpec::kMaxHeadDim);
  };
  LatentSpec& latent = spec.latent;
  const bool kimi = spec.family == ModelFamily::kKimiLinear;
  if (kimi ? fields.Has("q_lora_rank") : !fields.IsNull("q_lora_rank")) {
    latent.q_rank = fields.IntOr("q_lora_rank", 1536, 1, ModelSpec::kMaxHidden);
  }
  latent.rank = fields.IntOr("kv_lora_rank", 512, 1, ModelSpec::kMaxHidden);
  latent.nope_dim = head_dim("qk_nope_head_dim", 128);
  latent.rope_dim = head_dim("qk_rope_head_dim", 64);
  latent.value_dim = head_dim("v_head_dim", 128);
  spec.head_dim = latent.nope_dim + latent.rope_dim;
  spec.kv_heads = spec.heads;
  return fields.status();
}

Status ReadIndex(JsonFields& fields, ModelSpec& spec) {
  if (spec.latent.q_rank == 0) {
    return MakeStatus(
        StatusCode::kUnimplemented,
        "{}: q_lora_rank is null; deepseek_v32 needs a number, because the index reads "
        "the latent of queries",
        fields.file());
  }
  spec.latent.index = {.heads = fields.IntOr("index_n_heads", 64, 1, ModelSpec::kMaxHeads),
                       .dim = fields.IntOr("index_head_dim", 128, 1, ModelSpec::kMaxHeadDim),
                       .rope_dim = spec.latent.rope_dim,
                       .tokens = fields.IntOr("index_topk", 2048, 1, ModelSpec::kMaxContext)};
  if (!fields.Has("layer_types")) return fields.status();
  BATON_ASSIGN_OR_RETURN(const std::vector<std::string> kinds, fields.Texts("layer_types"));
  for (const std::string& kind : kinds) {
    if (kind == "indexed_attention" || kind == "deepseek_sparse_attention") continue;
    return MakeStatus(
        StatusCode::kUnimplemented,
        "{}: layer_types has {}; only indexed_attention and deepseek_sparse_attention "
        "are supported",
        fields.file(),
        kind);
  }
  return fields.status();
}

Status ReadLatentRope(JsonFields& fields, ModelSpec& spec) {
  RopeSpec& rope = spec.rope;
  rope.rotary_dim = spec.latent.rope_dim;
  const bool third = spec.family == ModelFamily::kDeepSeekV3;
  if (third && !fields.BoolOr("rope_interleave", true)) rope.pairing = RopePairing::kHalves;
  if (rope.scaling == RopeScaling::kNone) return fields.status();

  const std::string_view key = fields.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  BATON_ASSIGN_OR_RETURN(const auto scaling, fields.Object(key));
  const double all = scaling->NumberOr("mscale_all_dim", 0, 0, 1e3);
  BATON_RETURN_IF_ERROR(scaling->status());
  if (all > 0) SetScaleOfYarn(all, spec);
  return fields.status();
}

void SetScaleOfYarn(double mscale_all_dim, ModelSpec& spec) {
  const double magnitude = YarnMagnitude(spec.rope.factor, mscale_all_dim);
  spec.attention_scale =
      static_cast<float>(magnitude * magnitude / std::sqrt(static_cast<double>(spec.head_dim)));
}

}  // namespace baton
