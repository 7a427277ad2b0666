#include "common/model/gguf_gemma.h"

#include <cmath>
#include <cstdint>
#include <string_view>

#include "common/kvcache/layout.h"

namespace baton {
namespace {

// Layers have a window but for each layer of a number.
void ReadWindows(GgufFields& fields, ModelSpec& spec) {
  const bool third = spec.family == ModelFamily::kGemma3;
  const int32_t window =
      fields.IntOr("attention.sliding_window", third ? 0 : 4096, 0, ModelSpec::kMaxContext);
  const int32_t pattern =
      fields.IntOr("attention.sliding_window_pattern", third ? 6 : 2, 1, kMaxLayers);
  for (int32_t i = 0; i < spec.layer_count(); ++i) {
    spec.layers[i].window = (i + 1) % pattern == 0 ? 0 : window;
  }
  if (!third) return;
  // The context length is that with scaling, which layers with a window do not have.
  spec.context_length = fields.Int("context_length", 1, ModelSpec::kMaxContext);
  RopeSpec& rope = spec.window_rope.emplace();
  rope.rotary_dim = spec.rope.rotary_dim;
  rope.pairing = spec.rope.pairing;
  rope.theta = fields.NumberOr("rope.freq_base_swa", 1e4, 1, 1e12);
}

}  // namespace

Status ReadGemmaOfGguf(GgufFields& fields, ModelSpec& spec) {
  const bool third = spec.family == ModelFamily::kGemma3;
  spec.residual = ResidualForm::kPreAndPostNorm;
  spec.feed_forward = FeedForward::kGeluTanhGated;
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  // The files do not have the scale of attention. In the models of 27 billion parameters, it is
  // that of heads which divide the hidden size.
  const bool largest = spec.layer_count() == (third ? 62 : 46);
  const int32_t scaled_dim = largest ? spec.hidden / spec.heads : spec.head_dim;
  spec.attention_scale = 1 / std::sqrt(static_cast<float>(scaled_dim));
  const auto cap = [&fields](std::string_view key, double fallback) {
    return static_cast<float>(fields.NumberOr(key, fallback, 0, ModelSpec::kMaxScale));
  };
  spec.logit_cap = cap("final_logit_softcapping", third ? 0 : 30);
  if (!third) spec.attention_cap = cap("attn_logit_softcapping", 50);
  ReadWindows(fields, spec);
  return fields.status();
}

}  // namespace baton
