#include "common/model/weight_loader.h"

#include "common/model/kv_scales.h"
#include "common/model/rope_frequencies.h"
#include "common/model/transposed_matrix.h"

namespace baton {
namespace {

WeightUse UseOf(WeightKind kind) {
  switch (kind) {
    case WeightKind::kEmbedding:
    case WeightKind::kRouter:
    case WeightKind::kLatentUp:
    case WeightKind::kLatentKeys:
    case WeightKind::kLatentValues:
      return WeightUse::kAny;
    case WeightKind::kExpertGate:
    case WeightKind::kExpertUp:
    case WeightKind::kExpertDown:
      return WeightUse::kExperts;
    default:
      return WeightUse::kMatMul;
  }
}

}  // namespace

StatusOr<std::unique_ptr<Matrix>> WeightLoader::LoadStacked(std::span<const WeightPart> parts,
                                                            const Extent& cols) {
  std::vector<HostMatrix> views;
  for (const WeightPart& part : parts) {
    BATON_ASSIGN_OR_RETURN(views.emplace_back(), GetMatrix(part, cols));
  }
  if (ops_ == nullptr) return std::unique_ptr<Matrix>();
  for (const WeightPart& part : parts) hasher_->Start(part.id);
  auto loaded = ops_->LoadMatrix(views);
  hasher_->Wait();
  for (const WeightPart& part : parts) source_.Release(part.id);
  return Count(std::move(loaded));
}

StatusOr<std::unique_ptr<Matrix>> WeightLoader::LoadGateUp(const WeightId& gate,
                                                           const WeightId& up,
                                                           const Extent& rows) {
  const Extent hidden{spec_.hidden};
  BATON_ASSIGN_OR_RETURN(const HostMatrix gate_view, GetMatrix({gate, rows}, hidden));
  BATON_ASSIGN_OR_RETURN(const HostMatrix up_view, GetMatrix({up, rows}, hidden));
  if (ops_ == nullptr) return std::unique_ptr<Matrix>();
  hasher_->Start(gate);
  hasher_->Start(up);
  auto loaded = ops_->LoadGateUp(gate_view, up_view);
  hasher_->Wait();
  source_.Release(gate);
  source_.Release(up);
  return Count(std::move(loaded));
}

StatusOr<std::unique_ptr<Vector>> WeightLoader::LoadNorm(WeightKind kind,
                                                         WeightKind bias,
                                                         int32_t layer,
                                                         float factor) {
  const Extent hidden{spec_.hidden};
  const WeightPart weight{{kind, layer, -1}, hidden};
  if (spec_.norm != NormKind::kLayerWithBias) return LoadVectors({weight}, factor);
  return LoadVectors({weight, {{bias, layer, -1}, hidden}}, factor);
}

StatusOr<std::unique_ptr<Vector>> WeightLoader::LoadVectors(std::initializer_list<WeightPart> parts,
                                                            float factor) {
  std::vector<float> values;
  for (const WeightPart& part : parts) {
    BATON_ASSIGN_OR_RETURN(const auto more, ReadVector(part));
    values.insert(values.end(), more.begin(), more.end());
  }
  for (float& value : values) value *= factor;
  return LoadVector(values);
}

StatusOr<std::vector<float>> WeightLoader::ReadVector(const WeightPart& part) {
  ids_.push_back(part.id);
  if (ops_ == nullptr) {
    BATON_RETURN_IF_ERROR(source_.CheckVector(part.id, part.rows.size));
    return std::vector<float>();
  }
  hasher_->Start(part.id);
  return source_.GetVector(part.id, part.rows.size, part.rows.range);
}

Status WeightLoader::LoadRope(DecoderWeights& to) {
  std::vector<float> factors;
  if (spec_.rope.file_factors) {
    ids_.push_back({WeightKind::kRopeFactors});
    BATON_ASSIGN_OR_RETURN(
        factors, source_.GetVector({WeightKind::kRopeFactors}, spec_.rope.rotary_dim / 2));
    for (const float factor : factors) {
      // The negation also catches NaN.
      if (!(factor > 0)) {
        return InvalidArgument("rope_freqs.weight has the factor {}; it must be greater than 0",
                               factor);
      }
    }
  }
  const auto load = [&](const RopeFrequencies& from, RopeWeights& into) -> Status {
    BATON_ASSIGN_OR_RETURN(into.inverse_frequencies, LoadVector(from.inverse));
    into.magnitude = from.magnitude;
    return OkStatus();
  };
  BATON_RETURN_IF_ERROR(load(ComputeRopeFrequencies(spec_.rope, factors), to.rope));
  if (!spec_.window_rope) return OkStatus();
  return load(ComputeRopeFrequencies(*spec_.window_rope, {}), to.window_rope.emplace());
}

StatusOr<std::unique_ptr<Vector>> WeightLoader::LoadKvScales(
    int32_t layer, float rope_magnitude, const std::optional<IndexRange>& kv_heads) {
  if (ops_ == nullptr) return std::unique_ptr<Vector>();
  BATON_ASSIGN_OR_RETURN(const auto scales,
                         ComputeKvScales(spec_, source_, layer, rope_magnitude, kv_heads));
  return LoadVector(scales);
}

StatusOr<std::unique_ptr<Vector>> WeightLoader::LoadVector(std::span<const float> values) {
  if (ops_ == nullptr) return std::unique_ptr<Vector>();
  return ops_->LoadVector(values);
}

StatusOr<HostMatrix> WeightLoader::GetMatrix(const WeightPart& part, const Extent& cols) {
  ids_.push_back(part.id);
  const MatrixSlice slice{.rows = part.rows.range, .cols = cols.range};
  if (ops_ == nullptr) {
    BATON_RETURN_IF_ERROR(source_.CheckMatrix(part.id, part.rows.size, cols.size, slice));
    return HostMatrix();
  }
  BATON_ASSIGN_OR_RETURN(HostMatrix matrix,
                         source_.GetMatrix(part.id, part.rows.size, cols.size, slice));
  matrix.may_quantize = MayUseFp8(spec_, part.id, bf16_);
  matrix.use = UseOf(part.id.kind);
  return matrix;
}

Status WeightLoader::LoadLatentHeads(int32_t layer, const IndexRange& heads, LatentWeights& to) {
  if (spec_.latent.two_tensors) return LoadTwoTensors(layer, heads, to);
  const WeightId id = {WeightKind::kLatentUp, layer, -1};
  const LatentSpec& latent = spec_.latent;
  const int64_t head_rows = int64_t{latent.nope_dim} + latent.value_dim;
  const Extent rows{spec_.heads * head_rows, RowsOfHeads(heads, head_rows)};
  BATON_ASSIGN_OR_RETURN(const HostMatrix all, GetMatrix({id, rows}, {latent.rank}));
  if (ops_ == nullptr) return OkStatus();
  Ops& ops = *ops_;
  hasher_->Start(id);
  const auto load = [&]() -> Status {
    for (int64_t row = 0; row < all.rows; row += head_rows) {
      const TransposedMatrix keys = TransposedMatrix::Of(RowsOf(all, row, latent.nope_dim));
      const HostMatrix values = RowsOf(all, row + latent.nope_dim, latent.value_dim);
      BATON_RETURN_IF_ERROR(LoadHead(keys.view(), values, ops, to));
    }
    return OkStatus();
  };
  Status loaded = load();
  hasher_->Wait();
  source_.Release(id);
  return loaded;
}

Status WeightLoader::LoadHead(const HostMatrix& keys,
                              const HostMatrix& values,
                              Ops& ops,
                              LatentWeights& to) {
  // Heads are multiplied with activations that are not quantised.
  const WidenedMatrix of_keys(keys);
  const WidenedMatrix of_values(values);
  BATON_ASSIGN_OR_RETURN(to.keys.emplace_back(), Count(ops.LoadMatrix({&of_keys.view(), 1})));
  BATON_ASSIGN_OR_RETURN(to.values.emplace_back(), Count(ops.LoadMatrix({&of_values.view(), 1})));
  return OkStatus();
}

Status WeightLoader::LoadTwoTensors(int32_t layer, const IndexRange& heads, LatentWeights& to) {
  const WeightId keys_id = {WeightKind::kLatentKeys, layer, -1};
  const WeightId values_id = {WeightKind::kLatentValues, layer, -1};
  const LatentSpec& latent = spec_.latent;
  const auto rows_of = [&](int32_t of_head) {
    return Extent{int64_t{spec_.heads} * of_head, RowsOfHeads(heads, of_head)};
  };
  BATON_ASSIGN_OR_RETURN(const HostMatrix keys,
                         GetMatrix({keys_id, rows_of(latent.rank)}, {latent.nope_dim}));
  BATON_ASSIGN_OR_RETURN(const HostMatrix values,
                         GetMatrix({values_id, rows_of(latent.value_dim)}, {latent.rank}));
  if (ops_ == nullptr) return OkStatus();
  Ops& ops = *ops_;
  hasher_->Start(keys_id);
  hasher_->Start(values_id);
  const auto load = [&]() -> Status {
    for (int64_t head = 0; head < heads.size(); ++head) {
      const HostMatrix key = RowsOf(keys, head * latent.rank, latent.rank);
      const HostMatrix value = RowsOf(values, head * latent.value_dim, latent.value_dim);
      BATON_RETURN_IF_ERROR(LoadHead(key, value, ops, to));
    }
    return OkStatus();
  };
  Status loaded = load();
  hasher_->Wait();
  source_.Release(keys_id);
  source_.Release(values_id);
  return loaded;
}

}  // namespace baton
