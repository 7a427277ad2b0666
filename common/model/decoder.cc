#include "common/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"
#include "common/model/activations.h"
#include "common/model/decoder_weights.h"
#include "common/model/fingerprint.h"

namespace baton {

class Decoder::Impl {
 public:
  Impl(const ModelSpec& spec, const DecoderLimits& limits, Ops& ops)
      : spec_(spec), limits_(limits), ops_(ops), exchange_(ops.exchange()) {}

  Status Load(const WeightSource& source, const LoadProgress& progress) {
    BATON_RETURN_IF_ERROR(spec_.Validate("model spec"));
    if (limits_.max_rows < 1 || limits_.max_logit_rows < 1) {
      return InvalidArgument("decoder limits: max_rows {} and max_logit_rows {} must be at least 1",
                             limits_.max_rows,
                             limits_.max_logit_rows);
    }
    if (limits_.fp8_kv && !ops_.supports_fp8_kv()) {
      return InvalidArgument(
          "an fp8 KV cache needs a GPU of sm_89 or newer, and a CUDA backend with code for it; on "
          "{} "
          "kv_type must be another type",
          ops_.device().name());
    }
    const RankPlace place = exchange_ == nullptr ? RankPlace{} : exchange_->place();
    const ExchangeMode mode = exchange_ == nullptr ? ExchangeMode::kGather : exchange_->mode();
    BATON_ASSIGN_OR_RETURN(plan_, MakeRankPlan(spec_, place, mode, limits_.balance));
    const bool experts = std::ranges::any_of(spec_.layers, &LayerSpec::moe);
    const Status runs = ops_.CheckModel({.heads = plan_.heads,
                                         .hidden = spec_.hidden,
                                         .vocabulary = spec_.vocab,
                                         .experts = experts ? spec_.moe.experts : 0,
                                         .experts_per_token = spec_.moe.experts_per_token,
                                         .expert_width = spec_.moe.intermediate,
                                         .fp8_kv = limits_.fp8_kv});
    if (!runs.ok())
      return Annotate(runs, fmt::format("the model cannot run on {}", ops_.device().name()));
    fingerprint_ = Fingerprint(spec_, source);
    BATON_ASSIGN_OR_RETURN(weights_,
                           LoadDecoderWeights(spec_,
                                              source,
                                              ops_,
                                              {.fp8_kv = limits_.fp8_kv,
                                               .bf16 = limits_.bf16,
                                               .slice = plan_.slice,
                                               .hashed = {place.tensor_rank, place.tensor_parallel},
                                               .progress = progress}));
    BATON_ASSIGN_OR_RETURN(
        activations_,
        Activations::Allocate(spec_, plan_, limits_.max_rows, limits_.max_logit_rows, ops_));
    return OkStatus();
  }

  void ForwardStage(const StepInput& input, const LayerHook& hook) {
    const auto rows = static_cast<int64_t>(input.tokens.size());
    const auto wanted = static_cast<int64_t>(input.logit_rows.size());
    BATON_CHECK(rows >= 1 && rows <= limits_.max_rows, "{} rows in a step", rows);
    BATON_CHECK(wanted <= limits_.max_logit_rows, "{} logit rows in a step", wanted);
    const Tensor residual = activations_.residual.Rows(rows);
    const Tensor normed = activations_.normed.Rows(rows);
    EnterStage(residual, normed);
    const auto layers = static_cast<int32_t>(plan_.layers.size());
    for (int32_t layer = 0; layer < layers; ++layer) {
      const bool last = plan_.last_stage() && layer + 1 == layers;
      const Tensor qkv = WriteKv(layer, normed);
      if (!plan_.tensor_parallel()) Report(layer, hook);
      if (!last) {
        FinishLayer(layer, Attend(layer, qkv, hook), residual, normed, hook);
      } else if (wanted == 0) {
        // No exchange of attention shows that the other ranks have written their KV.
        if (plan_.tensor_parallel()) {
          exchange_->Barrier();
          Report(layer, hook);
        }
      } else {
        FinishLogitRows(layer, qkv, wanted, hook);
      }
    }
    LeaveStage(residual, wanted);
  }

  Tensor TakeLogits(int64_t wanted) {
    const RankPlace& place = plan_.place;
    if (!place.leader()) return {};
    if (place.pipeline_parallel > 1) {
      exchange_->ReceiveFromStage(AnswerOf(wanted), place.pipeline_parallel - 1);
    }
    return activations_.logits.Rows(wanted);
  }

  const ModelSpec spec_;
  const DecoderLimits limits_;
  Ops& ops_;
  RankPlan plan_;
  Hash128 fingerprint_;
  DecoderWeights weights_;

 private:
  bool gathers() const { return plan_.tensor_parallel() && plan_.mode == ExchangeMode::kGather; }
  bool reduces() const { return plan_.tensor_parallel() && plan_.mode == ExchangeMode::kReduce; }

  // The layer's number in the model.
  int32_t NumberOf(int32_t layer) const { return static_cast<int32_t>(plan_.layers.begin) + layer; }

  // Calls the hook for a layer whose KV all tensor-parallel ranks have written.
  void Report(int32_t layer, const LayerHook& hook) const {
    if (hook) hook(NumberOf(layer));
  }

  // The columns of `whole` that this rank computes.
  Tensor Mine(const Tensor& whole, const std::vector<int64_t>& ends) const {
    if (!gathers()) return whole;
    const auto rank = static_cast<size_t>(plan_.place.tensor_rank);
    const int64_t first = rank == 0 ? 0 : ends[rank - 1];
    return whole.Columns(first, ends[rank] - first);
  }

  // Computes the residual and the first norm, or receives the residual of the stage before.
  void EnterStage(const Tensor& residual, const Tensor& normed) {
    if (!plan_.first_stage()) {
      exchange_->ReceiveFromStage(residual, plan_.place.stage - 1);
    } else if (!plan_.tensor_parallel()) {
      ops_.Embed(*weights_.embedding, 0, residual);
    } else {
      const auto first_token = static_cast<int32_t>(plan_.slice.vocab->begin);
      ops_.Embed(*weights_.embedding, first_token, residual);
      exchange_->AllReduce(residual);
    }
    ops_.RmsNorm(residual, *weights_.layers[0].attention_norm, spec_.norm_epsilon, normed);
  }

  AttentionArgs AttentionArgsOf(int32_t layer) const {
    AttentionArgs args;
    args.heads = plan_.heads;
    args.layer = layer;
    args.scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim));
    args.window = spec_.layers[NumberOf(layer)].window;
    args.kv_scales = weights_.layers[layer].kv_scales.get();
    return args;
  }

  // Computes q, k and v of every row and writes k and v into the KV cache. Returns q, k and v.
  Tensor WriteKv(int32_t layer, const Tensor& normed) {
    const LayerWeights& weights = weights_.layers[layer];
    const Tensor qkv = activations_.qkv.Rows(normed.rows);
    ops_.MatMul(normed, *weights.qkv, weights.qkv_bias.get(), qkv);
    RopeArgs rope;
    rope.inverse_frequencies = weights_.inverse_frequencies.get();
    rope.magnitude = weights_.rope_magnitude;
    rope.pairing = spec_.rope.pairing;
    rope.q_norm = weights.q_norm.get();
    rope.k_norm = weights.k_norm.get();
    rope.norm_epsilon = spec_.norm_epsilon;
    rope.kv_scales = weights.kv_scales.get();
    ops_.RopeAndWriteKv(qkv, plan_.heads, rope, layer);
    return qkv;
  }

  // Attention of all rows; of all ranks' heads, when they gather.
  Tensor Attend(int32_t layer, const Tensor& qkv, const LayerHook& hook) {
    const Tensor attention = activations_.attention.Rows(qkv.rows);
    ops_.Attention(qkv, AttentionArgsOf(layer), Mine(attention, plan_.ends.attention));
    GatherAttention(layer, attention, hook);
    return attention;
  }

  void GatherAttention(int32_t layer, const Tensor& attention, const LayerHook& hook) {
    if (!gathers()) return;
    exchange_->AllGather(attention, plan_.ends.attention);
    Report(layer, hook);
  }

  // out = W x for attention output and down, whole on every tensor-parallel rank.
  void Project(const Tensor& x, const Matrix& weight, const Vector* bias, const Tensor& out) {
    const bool adds_bias = !reduces() || plan_.place.tensor_rank == 0;
    ops_.MatMul(x, weight, adds_bias ? bias : nullptr, Mine(out, plan_.ends.hidden));
    if (gathers()) exchange_->AllGather(out, plan_.ends.hidden);
    if (reduces()) exchange_->AllReduce(out);
  }

  // The rest of a layer after attention, and the norm after the layer, which becomes `out`.
  void FinishLayer(int32_t layer,
                   const Tensor& attention,
                   const Tensor& residual,
                   const Tensor& out,
                   const LayerHook& hook) {
    const LayerWeights& weights = weights_.layers[layer];
    const bool last = layer + 1 == plan_.layers.size();
    const Vector& next_norm =
        last ? *weights_.next_norm : *weights_.layers[layer + 1].attention_norm;
    const Tensor delta = activations_.delta.Rows(residual.rows);
    const Tensor normed = activations_.normed.Rows(residual.rows);
    const float epsilon = spec_.norm_epsilon;
    Project(attention, *weights.attention_output, weights.attention_output_bias.get(), delta);
    if (reduces()) Report(layer, hook);
    ops_.AddRmsNorm(residual, delta, *weights.feed_forward_norm, epsilon, normed);
    FeedForward(layer, normed, delta);
    ops_.AddRmsNorm(residual, delta, next_norm, epsilon, out);
  }

  void FeedForward(int32_t layer, const Tensor& normed, const Tensor& delta) {
    const LayerWeights& weights = weights_.layers[layer];
    if (spec_.layers[NumberOf(layer)].moe) {
      ExpertArgs args;
      args.router = weights.router.get();
      args.gate_up = weights.expert_gate_up;
      args.down = weights.expert_down;
      args.experts_per_token = spec_.moe.experts_per_token;
      args.normalize = spec_.moe.normalize;
      args.rank_ends = plan_.expert_ends;
      ops_.Experts(normed, args, delta);
      return;
    }
    const Tensor hidden = activations_.feed_forward.Rows(normed.rows);
    ops_.MatMulSiluMul(normed,
                       *weights.gate_up,
                       weights.gate_up_bias.get(),
                       Mine(hidden, plan_.ends.feed_forward));
    if (gathers()) exchange_->AllGather(hidden, plan_.ends.feed_forward);
    Project(hidden, *weights.down, weights.down_bias.get(), delta);
  }

  // Finishes the last layer: after its attention only the logit rows are needed.
  void FinishLogitRows(int32_t layer, const Tensor& qkv, int64_t wanted, const LayerHook& hook) {
    const Tensor attention = activations_.attention.Rows(qkv.rows);
    const Tensor last_attention = activations_.last_attention.Rows(wanted);
    const Tensor last_residual = activations_.last_residual.Rows(wanted);
    const Tensor mine = Mine(attention, plan_.ends.attention);
    AttentionArgs args = AttentionArgsOf(layer);
    args.only_logit_rows = true;
    ops_.Attention(qkv, args, mine);
    ops_.GatherLogitRows(mine, Mine(last_attention, plan_.ends.attention));
    GatherAttention(layer, last_attention, hook);
    ops_.GatherLogitRows(activations_.residual.Rows(qkv.rows), last_residual);
    const Tensor last_normed = activations_.last_normed.Rows(wanted);
    FinishLayer(layer, last_attention, last_residual, last_normed, hook);
  }

  // What the last stage sends to the leader. Without logits, one number tells the leader that all
  // stages have finished the step.
  Tensor AnswerOf(int64_t wanted) const {
    if (wanted > 0) return activations_.logits.Rows(wanted);
    return activations_.logits.Rows(1).Columns(0, 1);
  }

  // Hands the residual to the next stage, or computes the logits and hands them to the leader.
  void LeaveStage(const Tensor& residual, int64_t wanted) {
    const RankPlace& place = plan_.place;
    const int32_t last_stage = place.pipeline_parallel - 1;
    if (place.stage < last_stage) exchange_->SendToStage(residual, place.stage + 1);
    if (plan_.last_stage() && wanted > 0) {
      const Tensor logits = activations_.logits.Rows(wanted);
      const Tensor normed = activations_.last_normed.Rows(wanted);
      Tensor mine = logits;
      if (plan_.tensor_parallel()) {
        mine = logits.Columns(plan_.slice.vocab->begin, plan_.slice.vocab->size());
      }
      ops_.MatMul(normed, weights_.output_head(), nullptr, mine);
      if (plan_.tensor_parallel()) exchange_->GatherToFirst(logits, plan_.ends.vocab);
    }
    if (last_stage > 0 && plan_.last_stage() && place.tensor_rank == 0) {
      exchange_->SendToStage(AnswerOf(wanted), 0);
    }
  }

  Exchange* const exchange_;  // null: this rank is the only one
  Activations activations_;
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

void Decoder::ForwardStage(const StepInput& input, const LayerHook& hook) {
  impl_->ForwardStage(input, hook);
}

Tensor Decoder::TakeLogits(size_t logit_rows) {
  return impl_->TakeLogits(static_cast<int64_t>(logit_rows));
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
const RankPlan& Decoder::plan() const {
  return impl_->plan_;
}
const Hash128& Decoder::fingerprint() const {
  return impl_->fingerprint_;
}
const Hash128& Decoder::weights_hash() const {
  return impl_->weights_.hash;
}
size_t Decoder::weight_bytes() const {
  return impl_->weights_.bytes;
}

}  // namespace baton
