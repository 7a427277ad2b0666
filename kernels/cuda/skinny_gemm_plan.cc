#include "kernels/cuda/skinny_gemm_plan.h"

#include <algorithm>

#include "kernels/cuda/skinny_gemm_layout.h"

namespace baton::cuda {
namespace {

constexpr int32_t kFewestStages = 2;

constexpr int32_t Parts(int32_t whole, int32_t part) {
  return (whole + part - 1) / part;
}

int32_t AtOnce(int32_t cluster, const SkinnyGemmLimits& limits) {
  if (cluster == 1) return limits.blocks;
  return cluster == 2 ? limits.clusters_of_2 : limits.clusters_of_4;
}

// Units that a block of eight row groups can have in hand.
int32_t MostUnits(int32_t unit_tiles) {
  return kSkinnyWarps * (kSkinnyTilesPerWarp / unit_tiles);
}

// Enough tiles in a block that x, of which each cluster reads all, stays small beside the weight;
// and so few that sums which blocks pass on are complete after one pass.
int32_t ClusterOf(const SkinnyGemmPlan& plan, int32_t spans, const SkinnyGemmLimits& limits) {
  int32_t cluster = 1;
  while (cluster < 4 && 2 * cluster <= spans &&
         plan.units * plan.unit_tiles * cluster < limits.enough_tiles * limits.blocks &&
         plan.units <= AtOnce(2 * cluster, limits) * MostUnits(plan.unit_tiles)) {
    cluster *= 2;
  }
  return cluster;
}

}  // namespace

SkinnyGemmPlan PlanSkinnyGemm(const Product& product, const SkinnyGemmLimits& limits) {
  SkinnyGemmPlan plan;
  plan.unit_tiles = product.silu_mul ? 2 : 1;
  plan.units = product.n / (kSkinnyTileRows * plan.unit_tiles);
  plan.cluster = ClusterOf(plan, product.k / kSkinnySpan, limits);
  plan.clusters = std::min(AtOnce(plan.cluster, limits), plan.units);
  while (plan.column_groups * kSkinnyGroupColumns < product.rows) plan.column_groups *= 2;

  // As many tiles a warp as it can have in hand: they share its reading of x.
  const int32_t most_units = Parts(plan.units, plan.clusters);
  plan.row_groups = 1;
  while (plan.row_groups < kSkinnyWarps &&
         plan.row_groups * (kSkinnyTilesPerWarp / plan.unit_tiles) < most_units) {
    plan.row_groups *= 2;
  }
  plan.k_groups = kSkinnyWarps / plan.row_groups;
  const int32_t passes = plan.direct() ? Parts(most_units, MostUnits(plan.unit_tiles)) : 1;
  plan.pass_units = Parts(most_units, passes);

  const int32_t most_tiles = plan.pass_units * plan.unit_tiles;
  constexpr int32_t kTilesOfLongStages = 10;
  plan.spans = plan.k_groups > 4 || most_tiles <= kTilesOfLongStages ? 2 : 1;
  plan.span_bytes = most_tiles * kSkinnyTileBytes + plan.column_groups * kSkinnyGroupBytes +
                    (product.norm_weight != nullptr ? kSkinnyNormBytes : 0);
  const int32_t stage_bytes = plan.spans * plan.span_bytes;
  plan.stages = std::clamp(
      (limits.shared_bytes - kSkinnyHeadBytes) / stage_bytes, kFewestStages, kSkinnyMostStages);
  plan.shared_bytes = kSkinnyHeadBytes + plan.stages * stage_bytes;
  if (plan.direct()) return plan;

  const int32_t tile_sums = plan.column_groups * kSkinnyGroupSumBytes;
  plan.received_slots = Parts(plan.pass_units, plan.cluster);
  plan.partial_at =
      plan.cluster * plan.k_groups * plan.column_groups * kSkinnyGroupColumns * int32_t{4};
  plan.received_at = plan.partial_at + plan.k_groups * most_tiles * tile_sums;
  const int32_t end =
      plan.received_at + plan.cluster * plan.received_slots * plan.unit_tiles * tile_sums;
  plan.shared_bytes = std::max(plan.shared_bytes, kSkinnyHeadBytes + end);
  return plan;
}

}  // namespace baton::cuda
