#include "kernels/cuda/gemm/gated_plan.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

// The tile widths for which there are kernels.
constexpr int32_t kColumns[] = {64, 96, 112, 128, 192, 224, 256};
constexpr int32_t kMinStages = 3;

// A rough estimate of the time on an H200, in microseconds. It is the largest of three times: to
// read the weights from memory; to read the weights and x through the L2 cache; and to multiply,
// where tensor cores read shared memory while TMA writes it. Each wave of tiles adds kTile.
float Cost(const GemmProblem& problem, const GatedPlan& plan) {
  constexpr float kMemory = 4.4e6f;  // bytes per microsecond
  constexpr float kCache = 8.2e6f;
  constexpr float kTile = 1;
  const float cycles_in_us = problem.weight_dtype == DType::kFp8 ? 1150 : 1700;
  const auto row_bytes = static_cast<float>(NumberBytes(problem) * problem.k);
  const auto row_blocks = static_cast<float>(plan.row_blocks);
  const auto rows = row_blocks * kGatedRowBlock;
  const auto columns = static_cast<float>(plan.columns);
  const auto waves = static_cast<float>(CeilDiv(plan.tiles, plan.clusters * plan.neighbours()));
  const float weights = row_bytes * static_cast<float>(problem.n);
  const float inputs = row_bytes * rows * static_cast<float>(plan.tiles) *
                       (plan.multicast == GatedMulticast::kWeights ? 2.0f : 1.0f) /
                       static_cast<float>(plan.neighbours());
  // SM cycles for 32 bytes of k. Shared memory reads or writes 32 bytes of four rows in a cycle.
  const float products = row_blocks * columns / 2;
  const float operands = row_blocks * (kGatedRowBlock + columns) / 4 + (rows + columns) / 4;
  const float cycles = row_bytes / 32 * std::max(products, operands);
  return std::max({weights / kMemory, (weights + inputs) / kCache, waves * cycles / cycles_in_us}) +
         waves * kTile;
}

// FP8 operands have half the bytes: two blocks lose more time by waiting for each other than by
// loading the same data twice.
bool MulticastIsFaster(const GemmProblem& problem, GatedMulticast multicast) {
  return multicast == GatedMulticast::kNone || problem.weight_dtype != DType::kFp8;
}

}  // namespace

GatedPlan PlanGatedGemm(const GemmProblem& problem, const GatedLimits& limits) {
  GatedPlan best;
  float least = std::numeric_limits<float>::max();
  for (const auto multicast :
       {GatedMulticast::kNone, GatedMulticast::kX, GatedMulticast::kWeights}) {
    if (limits.multicast ? multicast != *limits.multicast : !MulticastIsFaster(problem, multicast))
      continue;
    GatedPlan plan;
    plan.multicast = multicast;
    const int32_t concurrent_clusters = plan.cluster() == 1 ? limits.blocks : limits.clusters_of_2;
    if (concurrent_clusters == 0) continue;
    // No rows beyond the last: TMA fills them with zeros, which takes longer than a copy.
    plan.x_rows = RoundUp(CeilDiv(problem.rows, plan.cluster()), 8);
    plan.row_blocks =
        CeilDiv(multicast == GatedMulticast::kWeights ? plan.x_rows : problem.rows, kGatedRowBlock);
    for (const int32_t columns : kColumns) {
      if (columns > GatedMaxColumns(plan.row_blocks)) continue;
      if (limits.columns != 0 && columns != limits.columns) continue;
      const int32_t spans = GatedSpans(plan.row_blocks, columns);
      const int32_t stage_bytes = spans * GatedSpanBytes(plan.row_blocks, columns);
      plan.columns = columns;
      plan.tiles = CeilDiv(problem.n, columns);
      plan.clusters = std::min(concurrent_clusters, CeilDiv(plan.tiles, plan.neighbours()));
      plan.stages_per_tile = CeilDiv(problem.k / SpanNumbers(problem), spans);
      plan.stages =
          std::min((limits.shared_bytes - kGatedBarrierBytes) / stage_bytes, kGatedMaxStages);
      plan.shared_bytes = kGatedBarrierBytes + plan.stages * stage_bytes;
      if (plan.stages < kMinStages) continue;
      const float cost = Cost(problem, plan);
      if (cost >= least) continue;
      least = cost;
      best = plan;
    }
  }
  return best;
}

}  // namespace baton::cuda
