#include "kernels/cuda/few_rows_plan.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/rounding.h"
#include "kernels/cuda/tensor_map.h"

namespace baton::cuda {
namespace {

constexpr int32_t kFewestStages = 2;
constexpr int32_t kEnoughStages = 4;
constexpr int32_t kMostTeams = 4;
// For sums beside a ring that goes on.
constexpr int32_t kSumsBytes = 40 << 10;

// Microseconds on an H200, as measured: weights come from memory; they and x, which is read once
// for each tile, pass the second-level cache; and blocks that share out k exchange sums.
float Cost(const Product& product, int32_t row_group, int32_t cluster, int32_t tiles) {
  constexpr float kMemory = 4.4e6f;  // bytes in a microsecond
  constexpr float kCache = 8.2e6f;
  constexpr float kExchange = 1.0f / 840;
  const auto k_bytes = static_cast<float>(product.k * NumberBytes(product));
  const float weights = k_bytes * static_cast<float>(product.n);
  const float inputs = k_bytes * static_cast<float>(row_group * tiles);
  const auto rows = static_cast<float>(row_group);
  return std::max(weights / kMemory, (weights + inputs) / kCache) +
         static_cast<float>(cluster - 1) * rows * rows * kExchange;
}

int32_t AtOnce(int32_t cluster, const FewRowsLimits& limits) {
  if (cluster == 1) return limits.blocks;
  return cluster == 2 ? limits.clusters_of_2 : limits.clusters_of_4;
}

// Outputs of a tile when as few tiles as possible follow each other in a block.
int32_t TileOutputs(int32_t outputs, int32_t at_once, int32_t most) {
  const int32_t waves = CeilDiv(outputs, at_once * most);
  return std::min(RoundUp(CeilDiv(outputs, at_once * waves), 8), most);
}

// Spans of a stage: about `wanted` bytes of weights, not more than `ring`.
int32_t StageSpans(
    int32_t weight_bytes, int32_t most_spans, int32_t span_bytes, int32_t ring, int32_t wanted) {
  int32_t spans = 1;
  while (spans * weight_bytes < wanted * 3 / 4 && 2 * spans <= most_spans &&
         2 * spans * span_bytes <= ring) {
    spans *= 2;
  }
  return spans;
}

// One team waits for each instruction's sums before the next may add to them; several matrices, or
// several teams, fill that time.
int32_t Teams(const FewRowsPlan& plan, int32_t most, int32_t wanted) {
  const int32_t most_of_registers = plan.matrices == 1 ? kMostTeams : 2;
  if (wanted == 0) wanted = plan.row_group == kFewRowsMost && plan.cluster == 1 ? 4 : 2;
  int32_t teams = 1;
  while (2 * teams <= std::min(most, most_of_registers) && teams * plan.matrices < wanted) {
    teams *= 2;
  }
  return teams;
}

}  // namespace

FewRowsPlan PlanFewRows(const Product& product, const FewRowsLimits& limits) {
  FewRowsPlan plan;
  const int32_t halves = product.silu_mul ? 2 : 1;
  const int32_t outputs = product.n / halves;
  const int32_t k_spans = product.k / SpanNumbers(product);
  while (plan.row_group < product.rows) plan.row_group *= 2;

  float least = std::numeric_limits<float>::max();
  for (const int32_t cluster : {1, 2, kFewRowsCluster}) {
    const int32_t at_once = AtOnce(cluster, limits);
    if (at_once == 0) continue;
    const int32_t tile = TileOutputs(outputs, at_once, limits.tile_rows / halves);
    const int32_t tiles = CeilDiv(outputs, tile);
    // Sums that blocks exchange lie in the ring, which must then be free.
    if (cluster > 1 && (tiles > at_once || k_spans % cluster != 0)) continue;
    const float cost =
        cluster == limits.cluster ? 0 : Cost(product, plan.row_group, cluster, tiles);
    if (cost >= least) continue;
    least = cost;
    plan.cluster = cluster;
    plan.tile_outputs = tile;
    plan.tiles = tiles;
  }
  plan.clusters = std::min(AtOnce(plan.cluster, limits), plan.tiles);
  plan.matrices = halves * CeilDiv(plan.tile_outputs, kFewRowsMatrix);

  const int32_t waves = CeilDiv(plan.tiles, plan.clusters);
  // [team][half][row of x][output], with a gap behind each row.
  const int32_t team_bytes = halves * plan.row_group * (plan.tile_outputs + 4) * 4;
  plan.teams = Teams(plan, waves > 1 ? kSumsBytes / team_bytes : kMostTeams, limits.matrices);

  // Behind the ring lie the sums that warps rearrange; and instructions that take more rows than
  // the tile's last rows read on.
  const bool apart = waves > 1 && plan.teams > 1;
  const int32_t sums_bytes = plan.parted() ? plan.teams * team_bytes : 0;
  const int32_t staging = apart           ? sums_bytes
                          : plan.parted() ? 0
                                          : kFewRowsWarps * plan.row_group * kFewRowsStaging;
  const int32_t fixed = kFewRowsHead + std::max(staging, kFewRowsMatrix * kSpanBytes);
  const int32_t room = limits.shared_bytes - fixed;
  const int32_t weight_bytes = plan.tile_outputs * halves * kSpanBytes;
  const int32_t span_bytes = weight_bytes + plan.row_group * kSpanBytes;
  const int32_t part_spans = k_spans / plan.cluster;
  const int32_t enough = std::max(kEnoughStages, 2 * plan.teams);
  plan.spans = StageSpans(
      weight_bytes, CeilDiv(part_spans, plan.teams), span_bytes, room / enough, limits.stage_bytes);
  // A part of k that is shared out ends where the next begins.
  while (plan.cluster > 1 && part_spans % plan.spans != 0) plan.spans /= 2;
  plan.rounds = CeilDiv(part_spans, plan.spans);
  plan.weight_bytes = plan.spans * weight_bytes;
  plan.stage_bytes = plan.spans * span_bytes;
  plan.stages = std::min({room / plan.stage_bytes, kFewRowsStages, plan.rounds * waves});
  // A stage is always the same team's: only who has seen each of a barrier's phases can tell them
  // apart.
  plan.stages = std::max(plan.stages / plan.teams * plan.teams, kFewestStages * plan.teams);
  int32_t ring = plan.stages * plan.stage_bytes;
  plan.sums_at = apart ? ring : 0;
  if (!apart) ring = std::max(ring, sums_bytes);
  plan.shared_bytes = fixed + ring;
  return plan;
}

}  // namespace baton::cuda
