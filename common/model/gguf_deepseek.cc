#include "common/model/gguf_deepseek.h"

#include "common/model/gguf_config.h"
#include "common/model/hf_latent.h"

namespace baton {

Status ReadLatentOfGguf(GgufFields& fields, const GgufFile& gguf, ModelSpec& spec) {
  if (fields.Has("attention.temperature_scale")) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: {}.attention.temperature_scale is not supported",
                      gguf.path(),
                      gguf.String("general.architecture").value_or("deepseek2"));
  }
  LatentSpec& latent = spec.latent;
  latent.two_tensors = HasTensorInLayers(gguf, WeightKind::kLatentKeys, spec.layer_count());
  if (HasTensorInLayers(gguf, WeightKind::kQueryDown, spec.layer_count())) {
    latent.q_rank = fields.Int("attention.q_lora_rank", 1, ModelSpec::kMaxHidden);
  }
  latent.rank = fields.Int("attention.kv_lora_rank", 1, ModelSpec::kMaxHidden);
  latent.rope_dim = fields.Int("rope.dimension_count", 2, ModelSpec::kMaxHeadDim);
  // In files since April 2025, the keys without "_mla" have the sizes of the latent.
  const bool both = fields.Has("attention.key_length_mla");
  spec.head_dim = fields.Int(
      both ? "attention.key_length_mla" : "attention.key_length", 2, ModelSpec::kMaxHeadDim);
  latent.value_dim = fields.Int(
      both ? "attention.value_length_mla" : "attention.value_length", 1, ModelSpec::kMaxHeadDim);
  latent.nope_dim = spec.head_dim - latent.rope_dim;
  spec.kv_heads = spec.heads;
  return fields.status();
}

// llama.cpp knows no `mscale` but that of `mscale_all_dim`, so that cosines and sines have no
// factor.
Status ReadLatentScaleOfGguf(GgufFields& fields, ModelSpec& spec) {
  if (spec.rope.scaling != RopeScaling::kYarn) return fields.status();
  // A tenth of DeepSeek's `mscale_all_dim`.
  const double multiplier = fields.NumberOr("rope.scaling.yarn_log_multiplier", 0, 0, 100);
  if (multiplier > 0) {
    spec.rope.attention_factor = 1;
    SetScaleOfYarn(10 * multiplier, spec);
  }
  return fields.status();
}

}  // namespace baton
