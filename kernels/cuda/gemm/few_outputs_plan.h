#pragma once

#include <cstdint>
#include <optional>

#include "kernels/cuda/gemm/gemm_problem.h"

// How the thread blocks divide the work of a GEMM of few outputs (few_outputs_gemm.h). Each block
// computes one tile: up to 64 rows of x by `columns` outputs.
namespace baton::cuda {

inline constexpr int32_t kFewOutputsMaxRows = 256;
inline constexpr int32_t kFewOutputsRowGroup = 64;        // rows of x that a warp group multiplies
inline constexpr int32_t kFewOutputsMaxStages = 16;       // of the ring
inline constexpr int32_t kFewOutputsBarrierBytes = 1024;  // shared memory for the barriers

struct FewOutputsPlan {
  int32_t x_rows = 8;           // rows of x that a block loads; a multiple of 8
  int32_t row_groups = 1;       // blocks that divide the rows of x
  int32_t columns = 16;         // outputs of a tile
  int32_t tiles = 1;            // blocks that divide the outputs
  int32_t stages_per_tile = 1;  // k ends within the last one
  int32_t stages = 2;           // pipeline depth
  int32_t shared_bytes = 0;

  constexpr int32_t blocks() const { return row_groups * tiles; }
  bool operator==(const FewOutputsPlan&) const = default;
};

// Spans of k (tensor_map.h) in a stage.
constexpr int32_t FewOutputsSpans(int32_t columns) {
  return columns <= 32 ? 4 : 2;
}
// A stage holds the weights of its spans, then as many blocks of 64 rows of x.
constexpr int32_t FewOutputsStageBytes(int32_t columns) {
  return FewOutputsSpans(columns) * (columns + kFewOutputsRowGroup) * 128;
}

// The plan for a problem in bf16 without `accumulate` that SkinnyGemmSupports except for its number
// of rows. Nothing if it has more than kFewOutputsMaxRows, or if the tiles do not all run at a time
// on `sm_count` SMs. `columns` forces the width of a tile; with 0, PlanFewOutputsGemm chooses.
std::optional<FewOutputsPlan> PlanFewOutputsGemm(const GemmProblem& problem,
                                                 int32_t sm_count,
                                                 int32_t columns = 0);

}  // namespace baton::cuda
