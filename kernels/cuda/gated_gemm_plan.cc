#include "kernels/cuda/gated_gemm_plan.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/rounding.h"
#include "kernels/cuda/tensor_map.h"

namespace baton::cuda {
namespace {

// Those that there are kernels of.
constexpr int32_t kColumns[] = {64, 96, 112, 128, 192, 224, 256};
constexpr int32_t kFewestStages = 3;

// Microseconds on an H200, roughly: weights come from memory; they and x pass the second-level
// cache; tensor cores multiply what shared memory gives them; and tiles begin and end.
float Cost(const Product& product, const GatedPlan& plan) {
  constexpr float kMemory = 4.4e6f;  // bytes in a microsecond
  constexpr float kCache = 8.2e6f;
  constexpr float kTile = 1;
  const float cycles_in_us = product.weight_dtype == DType::kF8 ? 1150 : 1700;
  const auto row_bytes = static_cast<float>(NumberBytes(product) * product.k);
  const auto rows = static_cast<float>(plan.row_blocks * kGatedRowBlock);
  const auto columns = static_cast<float>(plan.columns);
  const auto waves = static_cast<float>(CeilDiv(plan.tiles, plan.clusters * plan.cluster));
  const float weights = row_bytes * static_cast<float>(product.n);
  const float inputs =
      row_bytes * rows * static_cast<float>(plan.tiles) / static_cast<float>(plan.cluster);
  const float cycles = row_bytes / 32 * static_cast<float>(plan.row_blocks) *
                       std::max(columns / 2, 16 + columns / 4);
  return std::max({weights / kMemory, (weights + inputs) / kCache, waves * cycles / cycles_in_us}) +
         waves * kTile;
}

}  // namespace

GatedPlan PlanGatedGemm(const Product& product, const GatedLimits& limits) {
  GatedPlan best;
  float least = std::numeric_limits<float>::max();
  GatedPlan plan;
  plan.row_blocks = CeilDiv(product.rows, kGatedRowBlock);
  for (const int32_t columns : kColumns) {
    if (columns > GatedMostColumns(plan.row_blocks)) continue;
    if (limits.columns != 0 && columns != limits.columns) continue;
    const int32_t spans = GatedSpans(plan.row_blocks, columns);
    const int32_t stage_bytes = spans * GatedSpanBytes(plan.row_blocks, columns);
    plan.columns = columns;
    plan.tiles = CeilDiv(product.n, columns);
    plan.rounds = CeilDiv(product.k / SpanNumbers(product), spans);
    plan.stages = std::min((limits.shared_bytes - kGatedHeadBytes) / stage_bytes, kGatedStages);
    plan.shared_bytes = kGatedHeadBytes + plan.stages * stage_bytes;
    if (plan.stages < kFewestStages) continue;
    for (const int32_t cluster : {1, 2}) {
      const int32_t at_once = cluster == 1 ? limits.blocks : limits.clusters_of_2;
      if (at_once == 0 || (limits.cluster != 0 && cluster != limits.cluster)) continue;
      // With half the bytes, waiting for each other takes longer than fetching x twice.
      if (limits.cluster == 0 && cluster == 2 && product.weight_dtype == DType::kF8) continue;
      plan.cluster = cluster;
      plan.clusters = std::min(at_once, CeilDiv(plan.tiles, cluster));
      // No more than there are: filling up with zeros takes the copy engine longer than copying.
      plan.x_rows = CeilDiv(product.rows, 8 * cluster) * 8;
      const float cost = Cost(product, plan);
      if (cost >= least) continue;
      least = cost;
      best = plan;
    }
  }
  return best;
}

}  // namespace baton::cuda
