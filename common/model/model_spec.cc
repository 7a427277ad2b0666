#include "common/model/model_spec.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/check.h"
#include "common/kvcache/layout.h"

namespace baton {
namespace {

// Keeps the first violated bound; the message names file, field and value.
class SpecChecker {
 public:
  explicit SpecChecker(std::string_view file) : file_(file) {}

  void Range(std::string_view field, int64_t value, int64_t low, int64_t high) {
    Require(value >= low && value <= high,
            "{} is {}; it must be between {} and {}",
            field,
            value,
            low,
            high);
  }

  void Scale(std::string_view field, double value) {
    Require(value > 0 && value <= ModelSpec::kMaxScale,
            "{} is {}; it must be above 0 and at most {}",
            field,
            value,
            ModelSpec::kMaxScale);
  }

  template <class... Args>
  void Require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
    if (holds || !status_.ok()) return;
    status_ = InvalidArgument("{}: {}", file_, fmt::format(format, std::forward<Args>(args)...));
  }

  Status status() const { return status_; }

 private:
  std::string_view file_;
  Status status_;
};

void CheckRope(const RopeSpec& rope, int32_t head_dim, SpecChecker& check) {
  check.Range("rotary dimension", rope.rotary_dim, 2, head_dim);
  check.Require(rope.rotary_dim % 2 == 0, "rotary dimension {} must be even", rope.rotary_dim);
  check.Require(
      std::isfinite(rope.theta) && rope.theta > 1, "rope theta {} must be above 1", rope.theta);
  check.Require(std::isfinite(rope.factor) && rope.factor >= 1,
                "rope scaling factor {} must be at least 1",
                rope.factor);
  if (rope.scaling == RopeScaling::kLlama3 || rope.scaling == RopeScaling::kYarn) {
    check.Range("original context length of rope scaling",
                rope.original_context,
                1,
                ModelSpec::kMaxContext);
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    check.Require(
        rope.low_frequency_factor > 0 && rope.high_frequency_factor > rope.low_frequency_factor,
        "rope scaling llama3: low_freq_factor {} must be above 0 and below "
        "high_freq_factor {}",
        rope.low_frequency_factor,
        rope.high_frequency_factor);
  }
  if (rope.scaling == RopeScaling::kLong) {
    check.Require(rope.factors.size() == static_cast<size_t>(rope.rotary_dim / 2),
                  "rope scaling longrope has {} factors; half of the rotary dimension {} is needed",
                  rope.factors.size(),
                  rope.rotary_dim);
    for (const double factor : rope.factors) check.Scale("factor of rope scaling longrope", factor);
    check.Scale("attention factor of rope scaling longrope", rope.attention_factor);
  }
  if (rope.scaling == RopeScaling::kYarn) {
    check.Require(rope.beta_slow > 0 && rope.beta_fast >= rope.beta_slow,
                  "rope scaling yarn: beta_slow {} must be above 0 and at most beta_fast {}",
                  rope.beta_slow,
                  rope.beta_fast);
  }
}

void CheckMoe(const MoeSpec& moe, SpecChecker& check) {
  check.Range("number of experts", moe.experts, 1, ModelSpec::kMaxExperts);
  check.Range("experts per token", moe.experts_per_token, 1, moe.experts);
  check.Range("feed-forward size of an expert", moe.intermediate, 1, ModelSpec::kMaxIntermediate);
  check.Range("feed-forward size of the shared expert",
              moe.shared_intermediate,
              0,
              ModelSpec::kMaxIntermediate);
  check.Range("number of expert groups", moe.groups, 1, moe.experts);
  check.Range("expert groups per token", moe.groups_per_token, 1, moe.groups);
  check.Require(moe.groups > 0 && moe.experts % moe.groups == 0,
                "number of experts {} must be a multiple of the number of expert groups {}",
                moe.experts,
                moe.groups);
  const int64_t reachable = int64_t{moe.groups_per_token} * (moe.experts / std::max(1, moe.groups));
  check.Require(moe.experts_per_token <= reachable,
                "experts per token {} are more than {} of {} groups of {} experts have",
                moe.experts_per_token,
                moe.groups_per_token,
                moe.groups,
                moe.experts);
  check.Scale("scale of the experts", moe.scale);
  check.Require(moe.least_sum >= 0 && moe.least_sum <= 1,
                "least sum of the experts' scores is {}; it must be between 0 and 1",
                moe.least_sum);
  check.Scale("alpha of the experts' gate", moe.gate.alpha);
  if (moe.gate.limit != 0) check.Scale("limit of the experts' gate", moe.gate.limit);
}

void CheckLatent(const ModelSpec& spec, SpecChecker& check) {
  const LatentSpec& latent = spec.latent;
  check.Range("latent of queries", latent.q_rank, 0, ModelSpec::kMaxHidden);
  check.Range("latent of keys and values", latent.rank, 1, ModelSpec::kMaxHidden);
  check.Range("head dimension without rope", latent.nope_dim, 1, ModelSpec::kMaxHeadDim);
  check.Range("head dimension with rope", latent.rope_dim, 2, ModelSpec::kMaxHeadDim);
  check.Range("head dimension of values", latent.value_dim, 1, ModelSpec::kMaxHeadDim);
  check.Range("numbers of a token in the KV cache", latent.width(), 1, kMaxPlaneDim);
  const IndexShape& index = latent.index;
  if (index.heads == 0) return;
  constexpr int32_t kMaxIndexedContext = 1 << 24;  // a float32 number has each position exactly
  check.Range("number of index heads", index.heads, 1, ModelSpec::kMaxHeads);
  check.Range("dimension of index heads", index.dim, 1, ModelSpec::kMaxHeadDim);
  check.Range("rotated dimension of index heads", index.rope_dim, 2, index.dim);
  check.Range("tokens that the index selects", index.tokens, 1, ModelSpec::kMaxContext);
  check.Range("context length with an index", spec.context_length, 1, kMaxIndexedContext);
  check.Require(latent.q_rank > 0, "an index needs a latent of queries");
}

void CheckRecurrent(const ModelSpec& spec, SpecChecker& check) {
  constexpr int32_t kMaxKernel = 64;
  const RecurrentSpec& recurrent = spec.recurrent;
  const RecurrentShape& shape = recurrent.shape;
  const std::string of = fmt::format(" of {}", Name(shape.rule));
  check.Range("number of key heads" + of, shape.key_heads, 1, ModelSpec::kMaxHeads);
  check.Range("number of value heads" + of, shape.value_heads, 1, ModelSpec::kMaxHeads);
  check.Range("key dimension" + of, shape.key_dim, 1, ModelSpec::kMaxHeadDim);
  check.Range("value dimension" + of, shape.value_dim, 1, ModelSpec::kMaxIntermediate);
  check.Range("convolution kernel" + of, shape.kernel, 1, kMaxKernel);
  check.Require(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0,
                "number of value heads{} {} must be a multiple of the number of key heads {}",
                of,
                shape.value_heads,
                shape.key_heads);
  check.Require(spec.kv_heads > 0 && shape.key_heads % spec.kv_heads == 0,
                "number of key heads{} {} must be a multiple of the number of KV heads {}: ranks "
                "divide both alike",
                of,
                shape.key_heads,
                spec.kv_heads);
  check.Require(
      std::ranges::all_of(spec.layers,
                          [](const LayerSpec& layer) { return layer.tokens_read().reads_all(); }),
      "layers have sliding windows or chunks; beside {} there must be none",
      Name(shape.rule));
  check.Range("latent" + of, recurrent.latent_rank, 0, ModelSpec::kMaxHidden);
  check.Require(recurrent.min_time >= 0 && recurrent.min_time <= recurrent.max_time,
                "time step{} is at least {} and at most {}; the limits must ascend from 0",
                of,
                recurrent.min_time,
                recurrent.max_time);
  for (const float scale : {recurrent.input_scale,
                            recurrent.gate_scale,
                            recurrent.value_scale,
                            recurrent.key_scale,
                            recurrent.query_scale,
                            recurrent.time_scale,
                            recurrent.output_scale}) {
    check.Scale("factor" + of, scale);
  }
  if (!check.status().ok()) return;
  const int64_t heads = shape.key_heads / spec.kv_heads;
  check.Range("numbers of the state of a KV head",
              heads * std::max(shape.matrix_numbers(), shape.convolution_numbers()),
              1,
              kMaxStateDim);
}

}  // namespace

std::string_view Name(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::kNone:
      return "none";
    case RopeScaling::kLinear:
      return "linear";
    case RopeScaling::kLlama3:
      return "llama3";
    case RopeScaling::kYarn:
      return "yarn";
    case RopeScaling::kLong:
      return "longrope";
  }
  BATON_CHECK(false, "rope scaling {}", static_cast<int>(scaling));
}

int32_t ModelSpec::sliding_window() const {
  int32_t largest = 0;
  for (const LayerSpec& layer : layers) {
    if (layer.window == 0) return 0;
    largest = std::max(largest, layer.window);
  }
  return largest;
}

int32_t ModelSpec::attention_layers() const {
  return static_cast<int32_t>(std::ranges::count_if(layers, &LayerSpec::attention));
}

int32_t ModelSpec::state_layers() const {
  return static_cast<int32_t>(std::ranges::count_if(layers, &LayerSpec::state));
}

size_t ModelSpec::KvBytesPerToken(size_t number_bytes) const {
  const int64_t numbers = latent_attention() ? int64_t{latent.width()} + latent.index.dim
                                             : int64_t{2} * kv_heads * head_dim;
  return static_cast<size_t>(attention_layers() * numbers) * number_bytes;
}

size_t ModelSpec::StateBytes() const {
  return static_cast<size_t>(state_layers() * recurrent.shape.state_numbers()) * sizeof(float);
}

Status ModelSpec::Validate(std::string_view file) const {
  SpecChecker check(file);
  check.Range("number of layers", static_cast<int64_t>(layers.size()), 1, kMaxLayers);
  check.Range("hidden size", hidden, 1, kMaxHidden);
  check.Range("number of attention heads", heads, 1, kMaxHeads);
  check.Range("number of KV heads", kv_heads, 1, heads);
  check.Require(kv_heads > 0 && heads % kv_heads == 0,
                "number of attention heads {} must be a multiple of the number of KV heads {}",
                heads,
                kv_heads);
  check.Range("head dimension", head_dim, 2, kMaxHeadDim);
  check.Require(head_dim % 2 == 0, "head dimension {} must be even", head_dim);
  check.Range("vocabulary size", vocab, 1, kMaxVocabulary);
  check.Range("context length", context_length, 1, kMaxContext);
  check.Require(
      norm_epsilon > 0 && norm_epsilon < 1, "norm epsilon {} must be in (0, 1)", norm_epsilon);
  if (latent_attention()) CheckLatent(*this, check);
  if (state_layers() > 0) CheckRecurrent(*this, check);
  CheckRope(rope, head_dim, check);
  if (window_rope) CheckRope(*window_rope, head_dim, check);

  bool any_dense = false;
  bool any_moe = false;
  for (const LayerSpec& layer : layers) {
    check.Range("sliding window", layer.window, 0, kMaxContext);
    check.Range("attention chunk", layer.chunk, 0, kMaxContext);
    check.Require(layer.window == 0 || layer.chunk == 0,
                  "a layer has a sliding window of {} and attention chunks of {} tokens; it may "
                  "have one of them",
                  layer.window,
                  layer.chunk);
    if (layer.feed_forward) (layer.moe ? any_moe : any_dense) = true;
  }
  if (any_dense) check.Range("feed-forward size", intermediate, 1, kMaxIntermediate);
  if (any_moe) CheckMoe(moe, check);
  check.Scale("embedding scale", embedding_scale);
  check.Scale("scale of the input of attention", attention_input_scale);
  check.Scale("scale of the output of attention", attention_output_scale);
  check.Scale("scale of feed-forward networks", feed_forward_scale);
  check.Scale("scale of the gate of feed-forward networks", gate_scale);
  check.Scale("residual scale", residual_scale);
  check.Scale("logit scale", logit_scale);
  if (attention_scale != 0) check.Scale("attention scale", attention_scale);
  if (attention_cap != 0) check.Scale("cap of attention logits", attention_cap);
  if (query_scaling.slope != 0) {
    check.Scale("scale of queries by position", query_scaling.slope);
    check.Range("step of the scale of queries", query_scaling.step, 1, kMaxContext);
  }
  if (logit_cap != 0) check.Scale("cap of logits", logit_cap);
  check.Require(input_norms() || residual_scale == 1,
                "residual scale {} must be 1 in layers without input norms",
                residual_scale);
  const bool squared = feed_forward == FeedForward::kSquaredRelu;
  check.Require(silu() || squared || !any_moe,
                "experts must have feed-forward networks gated by silu, or a squared ReLU");
  check.Require((silu() && gate_scale == 1) || !gated() || !mlp_bias,
                "feed-forward networks gated by GELU, or with a scaled gate, must have no biases");
  for (const TokenId token : eos) check.Range("end-of-sequence token", token, 0, vocab - 1);
  if (bos) check.Range("begin-of-sequence token", *bos, 0, vocab - 1);
  return check.status();
}

namespace {

template <class Add>
void AddRope(const Add& add, std::string_view prefix, const RopeSpec& rope) {
  const auto add_part = [&](std::string_view name, const auto& value) {
    add(fmt::format("{}.{}", prefix, name), value);
  };
  add_part("theta", rope.theta);
  add_part("rotary_dim", rope.rotary_dim);
  add_part("pairing", rope.pairing == RopePairing::kHalves ? "halves" : "adjacent");
  add_part("scaling", Name(rope.scaling));
  add_part("factor", rope.factor);
  add_part("original_context", rope.original_context);
  add_part("low_frequency_factor", rope.low_frequency_factor);
  add_part("high_frequency_factor", rope.high_frequency_factor);
  add_part("beta_fast", rope.beta_fast);
  add_part("beta_slow", rope.beta_slow);
  add_part("attention_factor", rope.attention_factor);
  add_part("truncate", rope.truncate);
  add_part("file_factors", rope.file_factors);
}

template <class AddIf>
void AddRecurrent(const AddIf& add_if, const RecurrentSpec& recurrent) {
  const RecurrentShape& shape = recurrent.shape;
  const bool delta_net = shape.rule == RecurrentRule::kDelta;
  add_if(shape.key_heads > 0,
         delta_net ? "delta_net" : "recurrent",
         fmt::format("keys {} of {} values {} of {} kernel {}",
                     shape.key_heads,
                     shape.key_dim,
                     shape.value_heads,
                     shape.value_dim,
                     shape.kernel));
  add_if(!delta_net,
         "recurrent.rule",
         fmt::format("{}, {} key heads alike", Name(shape.rule), shape.key_copies));
  add_if(recurrent.tiled_keys > 0, "recurrent.tiled_keys", recurrent.tiled_keys);
  add_if(recurrent.convolution_bias, "recurrent.convolution_bias", true);
  add_if(!recurrent.norm, "recurrent.norm", false);
  add_if(recurrent.min_time > 0 || std::isfinite(recurrent.max_time),
         "recurrent.time",
         fmt::format("{} to {}", recurrent.min_time, recurrent.max_time));
  add_if(recurrent.latent_rank > 0, "recurrent.latent_rank", recurrent.latent_rank);
  const float scales[] = {recurrent.input_scale,
                          recurrent.gate_scale,
                          recurrent.value_scale,
                          recurrent.key_scale,
                          recurrent.query_scale,
                          recurrent.time_scale,
                          recurrent.output_scale};
  const bool scaled = std::ranges::any_of(scales, [](float scale) { return scale != 1; });
  add_if(scaled, "recurrent.scales", fmt::format("{}", fmt::join(scales, " ")));
}

std::string PartsText(const LayerSpec& layer, RecurrentRule rule) {
  std::string text;
  if (layer.state) text += rule == RecurrentRule::kDelta ? " delta_net" : " state";
  if (layer.attention == layer.state) text += layer.state ? " beside attention" : " without mixer";
  if (!layer.feed_forward) text += " without feed-forward";
  return text;
}

// Writes the values that differ from those of Llama.
template <class Add>
void AddVariants(const Add& add, const ModelSpec& spec) {
  const auto add_if = [&add](bool differs, std::string_view name, const auto& value) {
    if (differs) add(name, value);
  };
  add_if(!spec.rope.factors.empty(),
         "rope.factors",
         fmt::format("{}", fmt::join(spec.rope.factors, " ")));
  const bool post_norms = spec.residual == ResidualForm::kPreAndPostNorm;
  add_if(spec.norm != NormKind::kRms, "norm", Name(spec.norm));
  add_if(spec.residual != ResidualForm::kPreNorm && !post_norms, "residual", Name(spec.residual));
  add_if(spec.qk_norm > QkNorm::kHead, "qk_norm.kind", Name(spec.qk_norm));
  add_if(!spec.silu(), "feed_forward", Name(spec.feed_forward));
  add_if(spec.embedding_scale != 1, "embedding_scale", spec.embedding_scale);
  add_if(spec.residual_scale != 1, "residual_scale", spec.residual_scale);
  const auto add_scale = [&](std::string_view name, float scale) {
    add_if(scale != 1, name, scale);
  };
  add_scale("attention_input_scale", spec.attention_input_scale);
  add_scale("attention_output_scale", spec.attention_output_scale);
  add_scale("feed_forward_scale", spec.feed_forward_scale);
  add_scale("gate_scale", spec.gate_scale);
  add_if(spec.attention_scale != 0, "attention_scale", spec.attention_scale);
  add_if(spec.attention_cap != 0, "attention_cap", spec.attention_cap);
  add_if(spec.query_scaling.slope != 0,
         "query_scaling",
         fmt::format("{} every {}", spec.query_scaling.slope, spec.query_scaling.step));
  add_if(spec.logit_scale != 1, "logit_scale", spec.logit_scale);
  add_if(spec.logit_cap != 0, "logit_cap", spec.logit_cap);
  add_if(spec.head_bias, "head_bias", true);
  add_if(spec.attention_sinks, "attention_sinks", true);
  const LatentSpec& latent = spec.latent;
  add_if(spec.latent_attention(),
         "latent",
         fmt::format("q {} kv {} nope {} rope {} value {}",
                     latent.q_rank,
                     latent.rank,
                     latent.nope_dim,
                     latent.rope_dim,
                     latent.value_dim));
  add_if(latent.index.heads > 0,
         "index",
         fmt::format("{} heads of {} rope {} tokens {}",
                     latent.index.heads,
                     latent.index.dim,
                     latent.index.rope_dim,
                     latent.index.tokens));
  AddRecurrent(add_if, spec.recurrent);
  add_if(spec.attention_gate, "attention_gate", true);
  const MoeSpec& moe = spec.moe;
  add_if(moe.score == RouterScore::kSigmoid, "moe.score", "sigmoid");
  add_if(moe.score == RouterScore::kSigmoidOfLogits, "moe.score", "sigmoid of logits");
  add_if(moe.weighted_inputs, "moe.weighted_inputs", true);
  add_if(moe.selection_bias, "moe.selection_bias", true);
  add_if(moe.groups != 1, "moe.groups", fmt::format("{} of {}", moe.groups_per_token, moe.groups));
  add_if(moe.group_score == GroupScore::kBest, "moe.group_score", "best");
  add_if(moe.scale != 1, "moe.scale", moe.scale);
  add_if(moe.least_sum != 0, "moe.least_sum", moe.least_sum);
  add_if(moe.shared_intermediate != 0, "moe.shared_intermediate", moe.shared_intermediate);
  add_if(moe.shared_gate, "moe.shared_gate", true);
  add_if(moe.biases, "moe.biases", true);
  add_if(moe.gate.limit != 0,
         "moe.gate",
         fmt::format("limit {} alpha {}", moe.gate.limit, moe.gate.alpha));
}

}  // namespace

std::string ModelSpec::ToString() const {
  std::string text;
  const auto add = [&text](std::string_view name, const auto& value) {
    fmt::format_to(std::back_inserter(text), "{} {}\n", name, value);
  };
  add("family", Name(family));
  add("hidden", hidden);
  add("heads", heads);
  add("kv_heads", kv_heads);
  add("head_dim", head_dim);
  add("intermediate", intermediate);
  add("vocab", vocab);
  add("norm_epsilon", norm_epsilon);
  AddRope(add, "rope", rope);
  add("qk_norm", qk_norm != QkNorm::kNone);
  add("qkv_bias", qkv_bias);
  add("o_bias", o_bias);
  add("mlp_bias", mlp_bias);
  // What only some families have is left out elsewhere, so that the others keep the fingerprints
  // that they had before.
  if (residual == ResidualForm::kPreAndPostNorm) add("post_norms", true);
  AddVariants(add, *this);
  if (window_rope) AddRope(add, "window_rope", *window_rope);
  add("tied_head", tied_head);
  add("moe.experts", moe.experts);
  add("moe.experts_per_token", moe.experts_per_token);
  add("moe.intermediate", moe.intermediate);
  add("moe.normalize", moe.normalize);
  for (const LayerSpec& layer : layers) {
    add("layer",
        fmt::format("window {}{} moe {}{}{}",
                    layer.window,
                    layer.chunk > 0 ? fmt::format(" chunk {}", layer.chunk) : "",
                    layer.moe,
                    layer.rotary ? "" : " without rope",
                    PartsText(layer, recurrent.shape.rule)));
  }
  return text;
}

}  // namespace baton
