#include "kernels/cuda/gemm/skinny_plan.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

constexpr int32_t kMinStages = 2;
constexpr int32_t kWantedStages = 4;
constexpr int32_t kMaxWarpGroups = 4;
// Most shared memory for partial sums that must not overwrite the ring.
constexpr int32_t kPartialsBytes = 40 << 10;

// The time on an H200 in microseconds, estimated with measured rates. It is the larger of two
// times: to read the weights from memory, and to read the weights and x (once for each tile)
// through the L2 cache. Thread blocks that divide k also exchange partial sums.
float Cost(const GemmProblem& problem, int32_t row_group, int32_t cluster, int32_t tiles) {
  constexpr float kMemory = 4.4e6f;  // bytes per microsecond
  constexpr float kCache = 8.2e6f;
  constexpr float kExchange = 1.0f / 840;
  const auto k_bytes = static_cast<float>(problem.k * NumberBytes(problem));
  const float weights = k_bytes * static_cast<float>(problem.n);
  const float inputs = k_bytes * static_cast<float>(row_group * tiles);
  const auto rows = static_cast<float>(row_group);
  return std::max(weights / kMemory, (weights + inputs) / kCache) +
         static_cast<float>(cluster - 1) * rows * rows * kExchange;
}

int32_t AtOnce(int32_t cluster, const SkinnyLimits& limits) {
  if (cluster == 1) return limits.blocks;
  return cluster == 2 ? limits.clusters_of_2 : limits.clusters_of_4;
}

// The outputs of a tile, at most `most`, with as few waves of tiles as possible.
int32_t TileOutputs(int32_t outputs, int32_t concurrent_clusters, int32_t most) {
  const int32_t waves = CeilDiv(outputs, concurrent_clusters * most);
  return std::min(RoundUp(CeilDiv(outputs, concurrent_clusters * waves), 8), most);
}

// The number of spans in a pipeline stage: so that the stage has about `wanted` bytes of weights,
// and at most `ring` bytes in all.
int32_t StageSpans(
    int32_t weight_bytes, int32_t max_spans, int32_t span_bytes, int32_t ring, int32_t wanted) {
  int32_t spans = 1;
  while (spans * weight_bytes < wanted * 3 / 4 && 2 * spans <= max_spans &&
         2 * spans * span_bytes <= ring) {
    spans *= 2;
  }
  return spans;
}

// A WGMMA waits for the previous one on the same accumulators. Several matrices, or several warp
// groups, fill that time.
int32_t ChooseWarpGroups(const SkinnyPlan& plan, int32_t most, int32_t wanted) {
  const int32_t register_limit = plan.matrices == 1 ? kMaxWarpGroups : 2;
  if (wanted == 0) wanted = plan.row_group == kSkinnyMaxRows && plan.cluster == 1 ? 4 : 2;
  int32_t warp_groups = 1;
  while (2 * warp_groups <= std::min(most, register_limit) &&
         warp_groups * plan.matrices < wanted) {
    warp_groups *= 2;
  }
  return warp_groups;
}

}  // namespace

SkinnyPlan PlanSkinnyGemm(const GemmProblem& problem, const SkinnyLimits& limits) {
  SkinnyPlan plan;
  const int32_t halves = problem.silu_mul ? 2 : 1;
  const int32_t outputs = problem.n / halves;
  const int32_t k_spans = problem.k / SpanNumbers(problem);
  while (plan.row_group < problem.rows) plan.row_group *= 2;

  float least = std::numeric_limits<float>::max();
  for (const int32_t cluster : {1, 2, kSkinnyMaxCluster}) {
    const int32_t concurrent_clusters = AtOnce(cluster, limits);
    if (concurrent_clusters == 0) continue;
    const int32_t tile = TileOutputs(outputs, concurrent_clusters, limits.tile_rows / halves);
    const int32_t tiles = CeilDiv(outputs, tile);
    // Blocks exchange partial sums in the memory of the ring, so a block can have only one tile.
    if (cluster > 1 && (tiles > concurrent_clusters || k_spans % cluster != 0)) continue;
    const float cost =
        cluster == limits.cluster ? 0 : Cost(problem, plan.row_group, cluster, tiles);
    if (cost >= least) continue;
    least = cost;
    plan.cluster = cluster;
    plan.tile_outputs = tile;
    plan.tiles = tiles;
  }
  plan.clusters = std::min(AtOnce(plan.cluster, limits), plan.tiles);
  plan.matrices = halves * CeilDiv(plan.tile_outputs, kWgmmaRows);

  const int32_t waves = CeilDiv(plan.tiles, plan.clusters);
  // [warp group][half][row of x][output], with padding behind each row.
  const int32_t group_bytes = halves * plan.row_group * (plan.tile_outputs + 4) * 4;
  plan.warp_groups = ChooseWarpGroups(
      plan, waves > 1 ? kPartialsBytes / group_bytes : kMaxWarpGroups, limits.matrices);

  // The memory behind the ring holds the sums that warps transpose. A WGMMA also reads it when the
  // last rows of a tile are fewer than kWgmmaRows.
  const bool apart = waves > 1 && plan.warp_groups > 1;
  const int32_t partials_bytes = plan.splits_k() ? plan.warp_groups * group_bytes : 0;
  const int32_t staging = apart ? partials_bytes
                          : plan.splits_k()
                              ? 0
                              : kWarpGroupWarps * plan.row_group * kSkinnyStagingBytes;
  const int32_t fixed = kSkinnyBarrierBytes + std::max(staging, kWgmmaRows * kSpanBytes);
  const int32_t room = limits.shared_bytes - fixed;
  const int32_t weight_bytes = plan.tile_outputs * halves * kSpanBytes;
  const int32_t span_bytes = weight_bytes + plan.row_group * kSpanBytes;
  const int32_t part_spans = k_spans / plan.cluster;
  const int32_t enough = std::max(kWantedStages, 2 * plan.warp_groups);
  plan.spans = StageSpans(weight_bytes,
                          CeilDiv(part_spans, plan.warp_groups),
                          span_bytes,
                          room / enough,
                          limits.stage_bytes);
  // When blocks divide k, a block must not read into the next block's part.
  while (plan.cluster > 1 && part_spans % plan.spans != 0) plan.spans /= 2;
  plan.stages_per_tile = CeilDiv(part_spans, plan.spans);
  plan.weight_bytes = plan.spans * weight_bytes;
  plan.stage_bytes = plan.spans * span_bytes;
  plan.stages = std::min({room / plan.stage_bytes, kSkinnyMaxStages, plan.stages_per_tile * waves});
  // A stage always belongs to the same warp group: waiting by parity works only for a warp group
  // that waits for every phase of a barrier.
  plan.stages =
      std::max(plan.stages / plan.warp_groups * plan.warp_groups, kMinStages * plan.warp_groups);
  int32_t ring = plan.stages * plan.stage_bytes;
  plan.partials_offset = apart ? ring : 0;
  if (!apart) ring = std::max(ring, partials_bytes);
  plan.shared_bytes = fixed + ring;
  return plan;
}

}  // namespace baton::cuda
