#pragma once

#include <cstdint>
#include <optional>

#include "kernels/cuda/gemm/gemm_problem.h"

// How the thread blocks divide the work of a gated GEMM (gated_gemm.h). The outputs are divided
// into tiles, each with as many rows of gate as of up. A thread block computes one tile after the
// other: it streams the tile's weights and its rows of x through a ring of pipeline stages.
namespace baton::cuda {

inline constexpr int32_t kGatedRowBlock = 64;  // rows of x that one warp group multiplies
inline constexpr int32_t kGatedMaxRows = 256;
inline constexpr int32_t kGatedMaxStages = 16;       // of the ring
inline constexpr int32_t kGatedBarrierBytes = 1024;  // shared memory for the barriers

// What the two thread blocks of a cluster load for each other by TMA multicast, half each.
// kX: the blocks compute neighbouring tiles and share x. kWeights: both compute the same tile, each
// for half of the rows of x, and share its weights.
enum class GatedMulticast : int32_t { kNone, kX, kWeights };

struct GatedPlan {
  GatedMulticast multicast = GatedMulticast::kNone;
  int32_t row_blocks = 1;  // groups of kGatedRowBlock rows that a thread block computes
  int32_t x_rows = 8;      // rows of x that each thread block loads; a multiple of 8
  int32_t columns = 64;    // rows of the weight in a tile, gate and up together
  int32_t clusters = 1;    // clusters in the grid
  int32_t tiles = 1;
  int32_t stages_per_tile = 1;  // pipeline stages that one tile consumes
  int32_t stages = 3;           // pipeline depth
  int32_t shared_bytes = 0;

  // The thread blocks of a cluster, and the tiles that a cluster computes at a time.
  constexpr int32_t cluster() const { return multicast == GatedMulticast::kNone ? 1 : 2; }
  constexpr int32_t neighbours() const { return multicast == GatedMulticast::kX ? 2 : 1; }
  bool operator==(const GatedPlan&) const = default;
};

// The limits of the device, and choices that a test or benchmark may force.
struct GatedLimits {
  int32_t blocks = 0;                // thread blocks that run at a time
  int32_t clusters_of_2 = 0;         // clusters of two thread blocks that run at a time
  int32_t shared_bytes = 208 << 10;  // leaves room for a small kernel on the same SM
  // Choices to force; with 0 and nullopt, PlanGatedGemm chooses.
  int32_t columns = 0;
  std::optional<GatedMulticast> multicast = {};
};

// Bytes of one span (tensor_map.h) of a tile's weights and of the rows of x.
constexpr int32_t GatedSpanBytes(int32_t row_blocks, int32_t columns) {
  return (columns + row_blocks * kGatedRowBlock) * 128;
}

// Spans of k in one stage: two, if the ring still holds several such stages.
constexpr int32_t GatedSpans(int32_t row_blocks, int32_t columns) {
  constexpr int32_t kMaxBytes = 48 << 10;
  return 2 * GatedSpanBytes(row_blocks, columns) <= kMaxBytes ? 2 : 1;
}

// The widest tile. The accumulators of a wider one do not fit the register file.
constexpr int32_t GatedMaxColumns(int32_t row_blocks) {
  return row_blocks <= 2 ? 256 : row_blocks == 3 ? 192 : 128;
}

// The plan for a problem that GatedGemmSupports.
GatedPlan PlanGatedGemm(const GemmProblem& problem, const GatedLimits& limits);

}  // namespace baton::cuda
