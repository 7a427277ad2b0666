#include "common/model/decoder_weights.h"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>

#include "common/model/kv_scales.h"
#include "common/model/rope_frequencies.h"

namespace baton {
namespace {

// A weight to read from the source, and its number of rows (outputs).
struct Part {
  WeightId id;
  int64_t rows = 0;
};

// Loads weights from a source into a backend.
class Loader {
 public:
  Loader(const ModelSpec& spec, const WeightSource& source, Ops& ops)
      : spec_(spec), source_(source), ops_(ops) {}

  size_t bytes() const { return bytes_; }

  // Loads the parts as one matrix, concatenated along their rows.
  StatusOr<std::unique_ptr<Matrix>> LoadStacked(std::initializer_list<Part> parts, int64_t cols) {
    std::vector<HostMatrix> views;
    for (const Part& part : parts) {
      BATON_ASSIGN_OR_RETURN(views.emplace_back(), GetMatrix(part, cols));
    }
    auto loaded = ops_.LoadMatrix(views);
    for (const Part& part : parts) source_.Release(part.id);
    return Count(std::move(loaded));
  }

  StatusOr<std::unique_ptr<Matrix>> LoadGateUp(const WeightId& gate,
                                               const WeightId& up,
                                               int64_t rows) {
    BATON_ASSIGN_OR_RETURN(const HostMatrix gate_view, GetMatrix({gate, rows}, spec_.hidden));
    BATON_ASSIGN_OR_RETURN(const HostMatrix up_view, GetMatrix({up, rows}, spec_.hidden));
    auto loaded = ops_.LoadGateUp(gate_view, up_view);
    source_.Release(gate);
    source_.Release(up);
    return Count(std::move(loaded));
  }

  // Loads the parts as one vector, concatenated.
  StatusOr<std::unique_ptr<Vector>> LoadVectors(std::initializer_list<Part> parts) {
    std::vector<float> values;
    for (const Part& part : parts) {
      BATON_ASSIGN_OR_RETURN(const auto more, source_.GetVector(part.id, part.rows));
      values.insert(values.end(), more.begin(), more.end());
    }
    return ops_.LoadVector(values);
  }

 private:
  StatusOr<HostMatrix> GetMatrix(const Part& part, int64_t cols) const {
    BATON_ASSIGN_OR_RETURN(HostMatrix matrix, source_.GetMatrix(part.id, part.rows, cols));
    matrix.may_quantize = MayUseFp8(spec_, part.id);
    return matrix;
  }
  StatusOr<std::unique_ptr<Matrix>> Count(StatusOr<std::unique_ptr<Matrix>> matrix) {
    if (matrix.ok()) bytes_ += (*matrix)->bytes();
    return matrix;
  }

  const ModelSpec& spec_;
  const WeightSource& source_;
  Ops& ops_;
  size_t bytes_ = 0;
};

Status LoadAttention(Loader& loader, const ModelSpec& spec, int32_t layer, LayerWeights& to) {
  const auto id = [layer](WeightKind kind) { return WeightId{kind, layer, -1}; };
  const int64_t q_rows = int64_t{spec.heads} * spec.head_dim;
  const int64_t kv_rows = int64_t{spec.kv_heads} * spec.head_dim;
  BATON_ASSIGN_OR_RETURN(to.attention_norm,
                         loader.LoadVectors({{id(WeightKind::kAttentionNorm), spec.hidden}}));
  BATON_ASSIGN_OR_RETURN(to.qkv,
                         loader.LoadStacked({{id(WeightKind::kQuery), q_rows},
                                             {id(WeightKind::kKey), kv_rows},
                                             {id(WeightKind::kValue), kv_rows}},
                                            spec.hidden));
  if (spec.qkv_bias) {
    BATON_ASSIGN_OR_RETURN(to.qkv_bias,
                           loader.LoadVectors({{id(WeightKind::kQueryBias), q_rows},
                                               {id(WeightKind::kKeyBias), kv_rows},
                                               {id(WeightKind::kValueBias), kv_rows}}));
  }
  if (spec.qk_norm) {
    BATON_ASSIGN_OR_RETURN(to.q_norm,
                           loader.LoadVectors({{id(WeightKind::kQueryNorm), spec.head_dim}}));
    BATON_ASSIGN_OR_RETURN(to.k_norm,
                           loader.LoadVectors({{id(WeightKind::kKeyNorm), spec.head_dim}}));
  }
  BATON_ASSIGN_OR_RETURN(
      to.attention_output,
      loader.LoadStacked({{id(WeightKind::kAttentionOutput), spec.hidden}}, q_rows));
  if (spec.o_bias) {
    BATON_ASSIGN_OR_RETURN(
        to.attention_output_bias,
        loader.LoadVectors({{id(WeightKind::kAttentionOutputBias), spec.hidden}}));
  }
  return OkStatus();
}

Status LoadDense(Loader& loader, const ModelSpec& spec, int32_t layer, LayerWeights& to) {
  const auto id = [layer](WeightKind kind) { return WeightId{kind, layer, -1}; };
  BATON_ASSIGN_OR_RETURN(
      to.gate_up, loader.LoadGateUp(id(WeightKind::kGate), id(WeightKind::kUp), spec.intermediate));
  BATON_ASSIGN_OR_RETURN(
      to.down, loader.LoadStacked({{id(WeightKind::kDown), spec.hidden}}, spec.intermediate));
  if (!spec.mlp_bias) return OkStatus();
  BATON_ASSIGN_OR_RETURN(to.gate_up_bias,
                         loader.LoadVectors({{id(WeightKind::kGateBias), spec.intermediate},
                                             {id(WeightKind::kUpBias), spec.intermediate}}));
  BATON_ASSIGN_OR_RETURN(to.down_bias,
                         loader.LoadVectors({{id(WeightKind::kDownBias), spec.hidden}}));
  return OkStatus();
}

Status LoadExperts(Loader& loader, const ModelSpec& spec, int32_t layer, LayerWeights& to) {
  BATON_ASSIGN_OR_RETURN(
      to.router,
      loader.LoadStacked({{{WeightKind::kRouter, layer, -1}, spec.moe.experts}}, spec.hidden));
  for (int32_t expert = 0; expert < spec.moe.experts; ++expert) {
    const auto id = [&](WeightKind kind) { return WeightId{kind, layer, expert}; };
    BATON_ASSIGN_OR_RETURN(
        auto gate_up,
        loader.LoadGateUp(
            id(WeightKind::kExpertGate), id(WeightKind::kExpertUp), spec.moe.intermediate));
    BATON_ASSIGN_OR_RETURN(
        auto down,
        loader.LoadStacked({{id(WeightKind::kExpertDown), spec.hidden}}, spec.moe.intermediate));
    to.expert_gate_up.push_back(std::move(gate_up));
    to.expert_down.push_back(std::move(down));
  }
  return OkStatus();
}

Status LoadRope(const ModelSpec& spec, const WeightSource& source, Ops& ops, DecoderWeights& to) {
  std::vector<float> factors;
  if (spec.rope.file_factors) {
    BATON_ASSIGN_OR_RETURN(factors,
                           source.GetVector({WeightKind::kRopeFactors}, spec.rope.rotary_dim / 2));
    for (const float factor : factors) {
      // The negation also catches NaN.
      if (!(factor > 0)) {
        return InvalidArgument("rope_freqs.weight has the factor {}; it must be greater than 0",
                               factor);
      }
    }
  }
  const RopeFrequencies frequencies = ComputeRopeFrequencies(spec.rope, factors);
  BATON_ASSIGN_OR_RETURN(to.inverse_frequencies, ops.LoadVector(frequencies.inverse));
  to.rope_magnitude = frequencies.magnitude;
  return OkStatus();
}

}  // namespace

bool MayUseFp8(const ModelSpec& spec, const WeightId& id) {
  constexpr int32_t kExactFirstOutputs = 2;
  switch (id.kind) {
    case WeightKind::kQuery:
    case WeightKind::kKey:
    case WeightKind::kValue:
      return true;
    case WeightKind::kAttentionOutput:
      return id.layer >= kExactFirstOutputs;
    case WeightKind::kGate:
    case WeightKind::kUp:
    case WeightKind::kDown:
      return id.layer > 0 && id.layer + 1 < spec.layer_count();
    default:
      return false;
  }
}

StatusOr<DecoderWeights> LoadDecoderWeights(const ModelSpec& spec,
                                            const WeightSource& source,
                                            bool fp8_kv,
                                            Ops& ops,
                                            const std::function<void(double)>& progress) {
  Loader loader(spec, source, ops);
  DecoderWeights weights;
  const double steps = spec.layer_count() + 2;
  double done = 0;
  const auto advance = [&] {
    if (progress) progress(++done / steps);
  };
  BATON_ASSIGN_OR_RETURN(weights.embedding,
                         loader.LoadStacked({{{WeightKind::kEmbedding}, spec.vocab}}, spec.hidden));
  BATON_RETURN_IF_ERROR(LoadRope(spec, source, ops, weights));
  advance();
  for (int32_t layer = 0; layer < spec.layer_count(); ++layer) {
    LayerWeights& to = weights.layers.emplace_back();
    if (fp8_kv) {
      BATON_ASSIGN_OR_RETURN(const auto scales,
                             ComputeKvScales(spec, source, layer, weights.rope_magnitude));
      BATON_ASSIGN_OR_RETURN(to.kv_scales, ops.LoadVector(scales));
    }
    BATON_RETURN_IF_ERROR(LoadAttention(loader, spec, layer, to));
    BATON_ASSIGN_OR_RETURN(
        to.feed_forward_norm,
        loader.LoadVectors({{{WeightKind::kFeedForwardNorm, layer, -1}, spec.hidden}}));
    const auto load_feed_forward = spec.layers[layer].moe ? LoadExperts : LoadDense;
    BATON_RETURN_IF_ERROR(load_feed_forward(loader, spec, layer, to));
    advance();
  }
  BATON_ASSIGN_OR_RETURN(weights.output_norm,
                         loader.LoadVectors({{{WeightKind::kOutputNorm}, spec.hidden}}));
  if (!spec.tied_head) {
    BATON_ASSIGN_OR_RETURN(weights.head,
                           loader.LoadStacked({{{WeightKind::kHead}, spec.vocab}}, spec.hidden));
  }
  advance();
  weights.bytes = loader.bytes();
  return weights;
}

}  // namespace baton
