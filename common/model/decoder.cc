#include "common/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "common/base/check.h"
#include "common/model/decoder_weights.h"
#include "common/model/fingerprint.h"

namespace baton {
namespace {

// The stride of rows is a multiple of this many elements, so that vector loads stay within cache
// lines.
constexpr int64_t kRowMultiple = 16;

// An activation buffer with its view.
struct Activation {
  std::unique_ptr<Buffer> buffer;
  Tensor tensor;
};

// An activation buffer to be allocated.
struct WantedActivation {
  Activation& to;
  DType dtype;
  int64_t rows;
  int64_t cols;

  int64_t stride() const { return (cols + kRowMultiple - 1) / kRowMultiple * kRowMultiple; }
  size_t bytes() const { return static_cast<size_t>(rows * stride()) * ShapeOf(dtype).bytes; }
};

// Host memory is committed only when it is first touched, so the total is checked before the first
// allocation.
Status AllocateAll(std::span<const WantedActivation> wanted, int32_t max_rows, Device& device) {
  size_t bytes = 0;
  for (const WantedActivation& one : wanted) bytes += one.bytes();
  const size_t free_bytes = device.free_bytes();
  if (bytes > free_bytes) {
    return MakeStatus(StatusCode::kResourceExhausted,
                      "activations of steps of {} tokens (engine.max_step_tokens) take {} bytes on "
                      "{}; {} bytes are free beside the weights",
                      max_rows,
                      bytes,
                      device.name(),
                      free_bytes);
  }
  for (const WantedActivation& one : wanted) {
    BATON_ASSIGN_OR_RETURN(one.to.buffer, device.Allocate(one.bytes(), Sharing::kPrivate));
    one.to.tensor = {one.to.buffer->data(), one.dtype, one.rows, one.cols, one.stride()};
  }
  return OkStatus();
}

}  // namespace

class Decoder::Impl {
 public:
  Impl(const ModelSpec& spec, const DecoderLimits& limits, Ops& ops)
      : spec_(spec), limits_(limits), ops_(ops) {}

  Status Load(const WeightSource& source, const LoadProgress& progress) {
    BATON_RETURN_IF_ERROR(spec_.Validate("model spec"));
    if (limits_.max_rows < 1 || limits_.max_logit_rows < 1) {
      return InvalidArgument("decoder limits: max_rows {} and max_logit_rows {} must be at least 1",
                             limits_.max_rows,
                             limits_.max_logit_rows);
    }
    if (limits_.fp8_kv && !ops_.supports_fp8_kv()) {
      return InvalidArgument(
          "an fp8 KV cache needs a GPU of sm_89 or newer; on {} kv_type must be another type",
          ops_.device().name());
    }
    const bool experts = std::ranges::any_of(spec_.layers, &LayerSpec::moe);
    const Status runs = ops_.CheckModel({.heads = spec_.head_shape(),
                                         .hidden = spec_.hidden,
                                         .vocabulary = spec_.vocab,
                                         .experts = experts ? spec_.moe.experts : 0,
                                         .experts_per_token = spec_.moe.experts_per_token,
                                         .expert_width = spec_.moe.intermediate,
                                         .fp8_kv = limits_.fp8_kv});
    if (!runs.ok())
      return Annotate(runs, fmt::format("the model cannot run on {}", ops_.device().name()));
    fingerprint_ = Fingerprint(spec_, source);
    BATON_ASSIGN_OR_RETURN(
        weights_,
        LoadDecoderWeights(spec_,
                           source,
                           ops_,
                           {.fp8_kv = limits_.fp8_kv, .bf16 = limits_.bf16, .progress = progress}));
    return AllocateActivations();
  }

  Tensor Forward(const StepInput& input, const LayerHook& hook) {
    const auto rows = static_cast<int64_t>(input.tokens.size());
    const auto wanted = static_cast<int64_t>(input.logit_rows.size());
    BATON_CHECK(rows >= 1 && rows <= limits_.max_rows, "{} rows in a step", rows);
    BATON_CHECK(wanted <= limits_.max_logit_rows, "{} logit rows in a step", wanted);
    const Tensor residual = residual_.tensor.Rows(0, rows);
    const Tensor normed = normed_.tensor.Rows(0, rows);
    ops_.Embed(*weights_.embedding, residual);
    ops_.RmsNorm(residual, *weights_.layers[0].attention_norm, spec_.norm_epsilon, normed);
    const int32_t last = spec_.layer_count() - 1;
    for (int32_t layer = 0; layer <= last; ++layer) {
      const Tensor qkv = WriteKv(layer, normed, hook);
      if (layer == last && wanted == 0) break;
      const Tensor attention = attention_.tensor.Rows(0, rows);
      ops_.Attention(qkv, AttentionArgsOf(layer), attention);
      if (layer == last) {
        // After the last attention only the logit rows are needed.
        const Tensor last_attention = last_attention_.tensor.Rows(0, wanted);
        const Tensor last_residual = last_residual_.tensor.Rows(0, wanted);
        ops_.GatherLogitRows(attention, last_attention);
        ops_.GatherLogitRows(residual, last_residual);
        FinishLayer(layer, last_attention, last_residual, *weights_.output_norm);
      } else {
        FinishLayer(layer, attention, residual, *weights_.layers[layer + 1].attention_norm);
      }
    }
    const Tensor logits = logits_.tensor.Rows(0, wanted);
    if (wanted > 0) {
      ops_.MatMul(last_normed_.tensor.Rows(0, wanted), weights_.output_head(), nullptr, logits);
    }
    return logits;
  }

  const ModelSpec spec_;
  const DecoderLimits limits_;
  Ops& ops_;
  Hash128 fingerprint_;
  DecoderWeights weights_;

 private:
  Status AllocateActivations() {
    const int64_t rows = ops_.PaddedRows(limits_.max_rows);
    const int64_t logit_rows = ops_.PaddedRows(limits_.max_logit_rows);
    const int64_t q_cols = int64_t{spec_.heads} * spec_.head_dim;
    const int64_t kv_cols = int64_t{spec_.kv_heads} * spec_.head_dim;
    // The gathered rows of the last layer use the same buffers.
    const int64_t most = std::max(rows, logit_rows);
    const DType dtype = ops_.activation_dtype();
    const WantedActivation wanted[] = {
        {residual_, DType::kF32, rows, spec_.hidden},
        {normed_, dtype, most, spec_.hidden},
        {qkv_, dtype, rows, q_cols + 2 * kv_cols},
        {attention_, dtype, rows, q_cols},
        {delta_, dtype, most, spec_.hidden},
        {feed_forward_, dtype, most, std::max(spec_.intermediate, 1)},
        {last_attention_, dtype, logit_rows, q_cols},
        {last_residual_, DType::kF32, logit_rows, spec_.hidden},
        {last_normed_, dtype, logit_rows, spec_.hidden},
        {logits_, DType::kF32, logit_rows, spec_.vocab},
    };
    return AllocateAll(wanted, limits_.max_rows, ops_.device());
  }

  AttentionArgs AttentionArgsOf(int32_t layer) const {
    AttentionArgs args;
    args.heads = spec_.head_shape();
    args.layer = layer;
    args.scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim));
    args.window = spec_.layers[layer].window;
    args.kv_scales = weights_.layers[layer].kv_scales.get();
    return args;
  }

  // Computes q, k and v of every row and writes k and v into the KV cache. Returns q, k and v.
  Tensor WriteKv(int32_t layer, const Tensor& normed, const LayerHook& hook) {
    const LayerWeights& weights = weights_.layers[layer];
    const Tensor qkv = qkv_.tensor.Rows(0, normed.rows);
    ops_.MatMul(normed, *weights.qkv, weights.qkv_bias.get(), qkv);
    RopeArgs rope;
    rope.inverse_frequencies = weights_.inverse_frequencies.get();
    rope.magnitude = weights_.rope_magnitude;
    rope.pairing = spec_.rope.pairing;
    rope.q_norm = weights.q_norm.get();
    rope.k_norm = weights.k_norm.get();
    rope.norm_epsilon = spec_.norm_epsilon;
    rope.kv_scales = weights.kv_scales.get();
    ops_.RopeAndWriteKv(qkv, spec_.head_shape(), rope, layer);
    if (hook) hook(layer);
    return qkv;
  }

  // Computes the rest of a layer after attention, and the norm after the layer.
  void FinishLayer(int32_t layer,
                   const Tensor& attention,
                   const Tensor& residual,
                   const Vector& next_norm) {
    const LayerWeights& weights = weights_.layers[layer];
    const bool last = layer + 1 == spec_.layer_count();
    const int64_t rows = residual.rows;
    const Tensor delta = delta_.tensor.Rows(0, rows);
    const Tensor normed = normed_.tensor.Rows(0, rows);
    const Tensor next = last ? last_normed_.tensor.Rows(0, rows) : normed;
    const float epsilon = spec_.norm_epsilon;
    ops_.MatMul(attention, *weights.attention_output, weights.attention_output_bias.get(), delta);
    ops_.AddRmsNorm(residual, delta, *weights.feed_forward_norm, epsilon, normed);
    if (spec_.layers[layer].moe) {
      ExpertArgs args;
      args.router = weights.router.get();
      args.gate_up = weights.expert_gate_up;
      args.down = weights.expert_down;
      args.experts_per_token = spec_.moe.experts_per_token;
      args.normalize = spec_.moe.normalize;
      ops_.Experts(normed, args, delta);
    } else {
      const Tensor hidden = feed_forward_.tensor.Rows(0, rows);
      ops_.MatMulSiluMul(normed, *weights.gate_up, weights.gate_up_bias.get(), hidden);
      ops_.MatMul(hidden, *weights.down, weights.down_bias.get(), delta);
    }
    ops_.AddRmsNorm(residual, delta, next_norm, epsilon, next);
  }

  Activation residual_, normed_, qkv_, attention_, delta_, feed_forward_;
  Activation last_attention_, last_residual_, last_normed_, logits_;
};

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

StatusOr<std::unique_ptr<Decoder>> Decoder::Load(const ModelSpec& spec,
                                                 const WeightSource& weights,
                                                 Ops& ops,
                                                 const DecoderLimits& limits,
                                                 const LoadProgress& progress) {
  auto impl = std::make_unique<Impl>(spec, limits, ops);
  BATON_RETURN_IF_ERROR(impl->Load(weights, progress));
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

Tensor Decoder::Forward(const StepInput& input, const LayerHook& hook) {
  return impl_->Forward(input, hook);
}

const ModelSpec& Decoder::spec() const {
  return impl_->spec_;
}
const DecoderLimits& Decoder::limits() const {
  return impl_->limits_;
}
Ops& Decoder::ops() const {
  return impl_->ops_;
}
const Hash128& Decoder::fingerprint() const {
  return impl_->fingerprint_;
}
size_t Decoder::weight_bytes() const {
  return impl_->weights_.bytes;
}

}  // namespace baton
