#pragma once

#include <cstdint>

#include "kernels/cuda/gemm/gemm_problem.h"
#include "kernels/cuda/gemm/skinny_plan.h"

// How the thread blocks divide the work of a GEMM of a packed weight (packed_skinny.h). The plan is
// that of a skinny GEMM, whose parts have these meanings: a tile has `matrices` matrices of
// kTileOutputs outputs; each consumer warp group multiplies one of them, and warp_groups / matrices
// warp groups, its parts, consume the stages of a matrix in turn. A stage has whole chunks of the
// packed weight. Thread blocks of a cluster divide the chunks of a tile.
namespace baton::cuda {

inline constexpr int32_t kPackedMaxWarpGroups = 4;

struct PackedLimits : SkinnyLimits {
  // Matrices of a tile, and parts of a matrix, at most kPackedMaxWarpGroups together. 0:
  // PlanPackedGemm chooses. SkinnyLimits::matrices and tile_rows are not used.
  int32_t tile_matrices = 0;
  int32_t parts = 0;

  bool operator==(const PackedLimits&) const = default;
};

// The plan for a problem that PackedGemmSupports.
SkinnyPlan PlanPackedGemm(const GemmProblem& problem, const PackedLimits& limits);

// The chunks of the packed weight in a stage of the plan.
constexpr int32_t StageChunks(const SkinnyPlan& plan, const PackedFormat& format) {
  return plan.spans / format.tiles_of_chunk();
}
// The chunks of a tile that block `rank` of a cluster does not leave to blocks before it: its part
// ends where that of the next rank begins.
constexpr int32_t FirstChunk(int32_t rank, int32_t cluster, int32_t chunks) {
  return static_cast<int32_t>(int64_t{rank} * chunks / cluster);
}

}  // namespace baton::cuda
