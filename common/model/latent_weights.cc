#include "common/model/latent_weights.h"

namespace baton {
namespace {

Status LoadIndex(WeightLoader& loader, const ModelSpec& spec, int32_t layer, IndexWeights& to) {
  const auto id = [layer](WeightKind kind) { return WeightId{kind, layer, -1}; };
  const IndexShape& index = spec.latent.index;
  const Extent q{int64_t{index.heads} * index.dim};
  const Extent k{index.dim};
  const Extent hidden{spec.hidden};
  BATON_ASSIGN_OR_RETURN(
      to.q, loader.LoadStacked({{id(WeightKind::kIndexQuery), q}}, {spec.latent.q_rank}));
  BATON_ASSIGN_OR_RETURN(to.k, loader.LoadStacked({{id(WeightKind::kIndexKey), k}}, hidden));
  BATON_ASSIGN_OR_RETURN(to.k_norm,
                         loader.LoadVectors({{id(WeightKind::kIndexKeyNorm), k},
                                             {id(WeightKind::kIndexKeyNormBias), k}}));
  BATON_ASSIGN_OR_RETURN(
      to.weights, loader.LoadStacked({{id(WeightKind::kIndexWeights), {index.heads}}}, hidden));
  return OkStatus();
}

}  // namespace

Status LoadLatent(WeightLoader& loader,
                  const ModelSpec& spec,
                  const DecoderSlice& slice,
                  int32_t layer,
                  LatentWeights& to) {
  const auto id = [layer](WeightKind kind) { return WeightId{kind, layer, -1}; };
  const LatentSpec& latent = spec.latent;
  const Extent hidden{spec.hidden};
  const Extent q{int64_t{spec.heads} * spec.head_dim, RowsOfHeads(slice.heads, spec.head_dim)};
  if (latent.q_rank == 0) {
    BATON_ASSIGN_OR_RETURN(to.q, loader.LoadStacked({{id(WeightKind::kQuery), q}}, hidden));
  } else {
    const Extent q_rank{latent.q_rank};
    BATON_ASSIGN_OR_RETURN(to.q_down,
                           loader.LoadStacked({{id(WeightKind::kQueryDown), q_rank}}, hidden));
    if (spec.qkv_bias) {
      BATON_ASSIGN_OR_RETURN(to.q_down_bias,
                             loader.LoadVectors({{id(WeightKind::kQueryDownBias), q_rank}}));
    }
    BATON_ASSIGN_OR_RETURN(to.q_norm,
                           loader.LoadVectors({{id(WeightKind::kQueryDownNorm), q_rank}}));
    BATON_ASSIGN_OR_RETURN(to.q, loader.LoadStacked({{id(WeightKind::kQueryUp), q}}, q_rank));
  }
  const Extent width{latent.width()};
  BATON_ASSIGN_OR_RETURN(to.kv_down,
                         loader.LoadStacked({{id(WeightKind::kLatentDown), width}}, hidden));
  if (spec.qkv_bias) {
    BATON_ASSIGN_OR_RETURN(to.kv_down_bias,
                           loader.LoadVectors({{id(WeightKind::kLatentDownBias), width}}));
  }
  BATON_ASSIGN_OR_RETURN(to.kv_norm,
                         loader.LoadVectors({{id(WeightKind::kLatentNorm), {latent.rank}}}));
  if (latent.index.heads > 0) BATON_RETURN_IF_ERROR(LoadIndex(loader, spec, layer, to.index));
  return loader.LoadLatentHeads(layer, slice.heads.value_or(IndexRange{0, spec.heads}), to);
}

}  // namespace baton
