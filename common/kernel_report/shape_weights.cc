#include "common/kernel_report/shape_weights.h"

#include <memory>

namespace baton {
namespace {

class ShapeVector final : public Vector {
 public:
  explicit ShapeVector(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }

 private:
  int64_t size_;
};

std::unique_ptr<Vector> VectorOf(int64_t size, bool is_there = true) {
  return is_there ? std::make_unique<ShapeVector>(size) : nullptr;
}

std::unique_ptr<Matrix> MatrixOf(int64_t rows, int64_t cols) {
  return std::make_unique<ShapeMatrix>(rows, cols, DType::kBF16);
}

LatentWeights LatentShapes(const ModelSpec& spec) {
  const LatentSpec& latent = spec.latent;
  const int64_t q_rank = latent.q_rank == 0 ? spec.hidden : latent.q_rank;
  LatentWeights weights;
  if (latent.q_rank > 0) {
    weights.q_down = MatrixOf(latent.q_rank, spec.hidden);
    weights.q_norm = VectorOf(latent.q_rank);
  }
  weights.q = MatrixOf(int64_t{spec.heads} * spec.head_dim, q_rank);
  weights.kv_down = MatrixOf(latent.width(), spec.hidden);
  weights.kv_norm = VectorOf(latent.rank);
  return weights;
}

// What each rule has (RecurrentWeights), without the vectors, whose sizes nobody asks for.
RecurrentWeights RecurrentShapes(const ModelSpec& spec) {
  const RecurrentShape& shape = spec.recurrent.shape;
  const int64_t values = shape.value_numbers();
  const int64_t rank = spec.recurrent.latent_rank;
  const bool scans = shape.rule == RecurrentRule::kSelectiveScan;
  RecurrentWeights weights;
  weights.input = MatrixOf(shape.input_columns(), spec.hidden);
  weights.output = MatrixOf(spec.hidden, values);
  weights.gates = MatrixOf(shape.gate_columns(), rank > 0 ? rank : spec.hidden);
  if (!scans && shape.rule != RecurrentRule::kChannelDelta) return weights;
  weights.time_down = MatrixOf(rank, scans ? values : spec.hidden);
  weights.gate = MatrixOf(values, scans ? spec.hidden : rank);
  if (scans) {
    weights.time_norm = VectorOf(rank);
    weights.k = MatrixOf(shape.key_dim, values);
    weights.k_norm = VectorOf(shape.key_dim);
    weights.q = MatrixOf(shape.key_dim, values);
    weights.q_norm = VectorOf(shape.key_dim);
  } else {
    weights.gate_down = MatrixOf(rank, spec.hidden);
  }
  return weights;
}

}  // namespace

DecoderWeights ShapeWeights(const ModelSpec& spec, bool fp8_weights, const Bf16Layers& bf16) {
  const auto matrix = [&](int64_t rows, int64_t cols, const WeightId& id) {
    const bool fp8 = fp8_weights && MayUseFp8(spec, id, bf16);
    return std::make_unique<ShapeMatrix>(rows, cols, fp8 ? DType::kFp8 : DType::kBF16);
  };
  const int64_t hidden = spec.hidden;
  const int64_t q_rows = int64_t{spec.heads} * spec.head_dim;
  const int64_t output_cols =
      spec.latent_attention() ? int64_t{spec.heads} * spec.latent.value_dim : q_rows;
  const int64_t qkv_rows = q_rows + int64_t{2} * spec.kv_heads * spec.head_dim;
  DecoderWeights weights;
  weights.embedding = matrix(spec.vocab, hidden, {.kind = WeightKind::kEmbedding});
  if (!spec.embedding_is_head()) {
    weights.head = matrix(spec.vocab, hidden, {.kind = WeightKind::kHead});
  }
  weights.next_norm = VectorOf(hidden);
  for (int32_t i = 0; i < spec.layer_count(); ++i) {
    LayerWeights layer;
    layer.attention_norm = VectorOf(hidden);
    layer.qkv = matrix(qkv_rows, hidden, {WeightKind::kQuery, i});
    layer.qkv_bias = VectorOf(qkv_rows, spec.qkv_bias);
    layer.attention_output = matrix(hidden, output_cols, {WeightKind::kAttentionOutput, i});
    layer.attention_output_bias = VectorOf(hidden, spec.o_bias);
    layer.feed_forward_norm = VectorOf(hidden);
    if (spec.latent_attention()) layer.latent = LatentShapes(spec);
    if (spec.state_layers() > 0) layer.recurrent = RecurrentShapes(spec);
    if (spec.layers[static_cast<size_t>(i)].moe) {
      const int64_t width = spec.moe.intermediate;
      layer.router = matrix(spec.moe.experts, hidden, {WeightKind::kRouter, i});
      for (int32_t e = 0; e < spec.moe.experts; ++e) {
        layer.expert_gate_up.push_back(matrix(2 * width, hidden, {WeightKind::kExpertGate, i, e}));
        layer.expert_down.push_back(matrix(hidden, width, {WeightKind::kExpertDown, i, e}));
      }
    } else {
      const int64_t inner = spec.intermediate;
      layer.gate_up = matrix(2 * inner, hidden, {WeightKind::kGate, i});
      layer.gate_up_bias = VectorOf(2 * inner, spec.mlp_bias);
      layer.down = matrix(hidden, inner, {WeightKind::kDown, i});
      layer.down_bias = VectorOf(hidden, spec.mlp_bias);
    }
    weights.layers.push_back(std::move(layer));
  }
  return weights;
}

}  // namespace baton
