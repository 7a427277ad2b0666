#pragma once

#include <cstdint>

#include "kernels/cuda/gemm/gemm_problem.h"

// Who does what in a product of few rows (few_rows.h). Weights are cut into tiles of outputs and
// spans of k; a tile belongs to one block, or to the blocks of a cluster, that share out k. Blocks
// take tile after tile and stream their part of each through a ring of stages.
namespace baton::cuda {

inline constexpr int32_t kSkinnyMaxRows = 64;       // rows of x
inline constexpr int32_t kSkinnyMaxTileRows = 256;  // most rows of the weight in a tile
inline constexpr int32_t kWgmmaRows = 64;           // rows of the weight that one instruction takes
inline constexpr int32_t kSkinnyMaxStages = 16;     // most
inline constexpr int32_t kSkinnyMaxCluster = 4;     // most blocks that share out k
inline constexpr int32_t kSkinnyBarrierBytes = 1024;  // bytes, of barriers
inline constexpr int32_t kWarpGroupWarps = 4;  // of a team, which multiplies stages by itself
// Bytes of a row of x, with a gap, in the sums that a warp rearranges.
inline constexpr int32_t kSkinnyStagingBytes = 80;

struct SkinnyPlan {
  int32_t row_group = 8;    // rows of x, filled up to 8, 16, 32 or 64
  int32_t warp_groups = 1;  // of warps, that take stages in turn
  int32_t cluster = 1;      // blocks that share out k: 1, 2 or 4
  int32_t clusters = 1;
  int32_t tiles = 1;
  int32_t tile_outputs = 8;  // a multiple of 8
  int32_t matrices = 1;      // of a tile: instructions for its rows; even for pairs
  int32_t spans = 1;         // of a stage
  int32_t rounds = 1;        // stages of a block's part of a tile
  int32_t stages = 2;        // of the ring; a multiple of the teams
  int32_t weight_bytes = 0;  // of a stage
  int32_t stage_bytes = 0;
  int32_t partials_offset =
      0;  // in the ring or behind it: what teams and blocks lay down to be added up
  int32_t shared_bytes = 0;

  // Sums that are not complete in one team.
  constexpr bool splits_k() const { return cluster > 1 || warp_groups > 1; }
  bool operator==(const SkinnyPlan&) const = default;
};

// What the device allows, and what measurements say is best on it.
struct SkinnyLimits {
  int32_t blocks = 132;
  int32_t clusters_of_2 = 66;
  int32_t clusters_of_4 = 30;
  int32_t shared_bytes = 208 << 10;  // leaves room for a small kernel beside
  // Blocks that share out k, when it is not to be chosen: 1, 2 or 4.
  int32_t cluster = 0;
  // Weights of a stage: at least, where k and the ring allow it.
  int32_t stage_bytes = 16 << 10;
  int32_t tile_rows = kSkinnyMaxTileRows;  // of the weight, at most
  // Matrices that the teams of a block have in hand together, at least, when it is not to be
  // chosen.
  int32_t matrices = 0;

  bool operator==(const SkinnyLimits&) const = default;
};

// For a product that SkinnyGemmSupports.
SkinnyPlan PlanSkinnyGemm(const GemmProblem& problem, const SkinnyLimits& limits);

}  // namespace baton::cuda
