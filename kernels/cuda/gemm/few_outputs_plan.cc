#include "kernels/cuda/gemm/few_outputs_plan.h"

#include <algorithm>

#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

// The tile widths for which there are kernels. The narrowest whose tiles all run at a time divides
// the work among the most SMs.
constexpr int32_t kColumns[] = {16, 24, 32, 48, 64};
constexpr int32_t kSharedBytes = 208 << 10;  // leaves room for a small kernel on the same SM

}  // namespace

std::optional<FewOutputsPlan> PlanFewOutputsGemm(const GemmProblem& problem,
                                                 int32_t sm_count,
                                                 int32_t columns) {
  if (problem.rows > kFewOutputsMaxRows) return std::nullopt;
  FewOutputsPlan plan;
  plan.row_groups = CeilDiv(problem.rows, kFewOutputsRowGroup);
  plan.x_rows = RoundUp(CeilDiv(problem.rows, plan.row_groups), 8);
  for (const int32_t width : kColumns) {
    plan.columns = width;
    plan.tiles = CeilDiv(problem.n, width);
    if (plan.blocks() > sm_count || (columns != 0 && width != columns)) continue;
    const int32_t stage_bytes = FewOutputsStageBytes(width);
    plan.stages_per_tile = CeilDiv(problem.k / kSpanNumbers, FewOutputsSpans(width));
    plan.stages =
        std::min((kSharedBytes - kFewOutputsBarrierBytes) / stage_bytes, kFewOutputsMaxStages);
    plan.shared_bytes = kFewOutputsBarrierBytes + plan.stages * stage_bytes;
    return plan;
  }
  return std::nullopt;
}

}  // namespace baton::cuda
