#pragma once

#include <cstdint>

#include "kernels/cuda/gemm/gemm_problem.h"

// How the thread blocks divide the work of a skinny GEMM (skinny_gemm.h). The weight is divided
// into tiles of outputs and spans of k (tensor_map.h). One block computes a tile, or the blocks of
// a cluster do, which then divide k. A block computes one tile after the other and streams its part
// of each through a ring of pipeline stages.
namespace baton::cuda {

inline constexpr int32_t kSkinnyMaxRows = 64;         // rows of x
inline constexpr int32_t kSkinnyMaxTileRows = 256;    // rows of the weight in a tile
inline constexpr int32_t kWgmmaRows = 64;             // rows of the weight in one WGMMA
inline constexpr int32_t kSkinnyMaxStages = 16;       // of the ring
inline constexpr int32_t kSkinnyMaxCluster = 4;       // thread blocks that divide k
inline constexpr int32_t kSkinnyBarrierBytes = 1024;  // shared memory for the barriers
inline constexpr int32_t kWarpGroupWarps = 4;         // warps that execute a WGMMA together
// Bytes of a row of x, with padding, in the 16 outputs that a warp transposes.
inline constexpr int32_t kSkinnyStagingBytes = 80;

struct SkinnyPlan {
  int32_t row_group = 8;    // rows of x, rounded up to 8, 16, 32 or 64
  int32_t warp_groups = 1;  // consumer warp groups, which consume stages in turn
  int32_t cluster = 1;      // thread blocks that divide k: 1, 2 or 4
  int32_t clusters = 1;     // clusters in the grid
  int32_t tiles = 1;
  int32_t tile_outputs = 8;     // a multiple of 8
  int32_t matrices = 1;         // groups of kWgmmaRows weight rows in a tile; even with silu_mul
  int32_t spans = 1;            // spans of k in a stage
  int32_t stages_per_tile = 1;  // stages of a thread block's part of one tile
  int32_t stages = 2;           // pipeline depth; a multiple of warp_groups
  int32_t weight_bytes = 0;     // weights in a stage
  int32_t stage_bytes = 0;      // weights and x in a stage
  int32_t partials_offset = 0;  // of the partial sums from the ring's start: in it or behind it
  int32_t shared_bytes = 0;

  // Whether no warp group has the complete sums of a tile.
  constexpr bool splits_k() const { return cluster > 1 || warp_groups > 1; }
  bool operator==(const SkinnyPlan&) const = default;
};

// The limits of the device, and choices that are the best by measurement.
struct SkinnyLimits {
  int32_t blocks = 0;                // thread blocks that run at a time
  int32_t clusters_of_2 = 0;         // clusters of two thread blocks that run at a time
  int32_t clusters_of_4 = 0;         // the same for clusters of four
  int32_t shared_bytes = 208 << 10;  // leaves room for a small kernel on the same SM
  // Thread blocks that divide k: 1, 2 or 4. 0: PlanSkinnyGemm chooses.
  int32_t cluster = 0;
  // Bytes of weights wanted in a stage; a stage has less where k or the ring is too small.
  int32_t stage_bytes = 16 << 10;
  int32_t tile_rows = kSkinnyMaxTileRows;  // most rows of the weight in a tile
  // Matrices that the warp groups of a block should have under way together. 0: PlanSkinnyGemm
  // chooses.
  int32_t matrices = 0;

  bool operator==(const SkinnyLimits&) const = default;
};

// The plan for a problem that SkinnyGemmSupports.
SkinnyPlan PlanSkinnyGemm(const GemmProblem& problem, const SkinnyLimits& limits);

}  // namespace baton::cuda
