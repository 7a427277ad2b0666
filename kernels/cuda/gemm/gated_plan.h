#pragma once

#include <cstdint>
#include <optional>

#include "kernels/cuda/gemm/gemm_problem.h"

// Who does what in a gated product (gated_gemm.h). Outputs are cut into tiles, each with as many
// rows of gate as of up; blocks take tile after tile and stream its weights, with their rows of x,
// through a ring of stages.
namespace baton::cuda {

inline constexpr int32_t kGatedRowBlock = 64;  // rows of x that one warp group multiplies
inline constexpr int32_t kGatedMaxRows = 256;
inline constexpr int32_t kGatedMaxStages = 16;       // most
inline constexpr int32_t kGatedBarrierBytes = 1024;  // of barriers

// What two blocks fetch for each other, half each: all of x for neighbouring tiles, or the weights
// of one tile for half of x's rows each.
enum class GatedMulticast : int32_t { kNone, kX, kWeights };

struct GatedPlan {
  GatedMulticast multicast = GatedMulticast::kNone;
  int32_t row_blocks = 1;  // of a block
  int32_t x_rows = 8;      // that each block fetches: a multiple of 8
  int32_t columns = 64;    // rows of the weight in a tile, gate's and up's together
  int32_t clusters = 1;
  int32_t tiles = 1;
  int32_t rounds = 1;  // stages of a tile
  int32_t stages = 3;  // of the ring
  int32_t shared_bytes = 0;

  // Blocks of a cluster, and tiles that it takes at a time.
  constexpr int32_t cluster() const { return multicast == GatedMulticast::kNone ? 1 : 2; }
  constexpr int32_t neighbours() const { return multicast == GatedMulticast::kX ? 2 : 1; }
  bool operator==(const GatedPlan&) const = default;
};

// What the device allows, and what to try.
struct GatedLimits {
  int32_t blocks = 132;
  int32_t clusters_of_2 = 66;
  int32_t shared_bytes = 208 << 10;  // leaves room for a small kernel beside
  // To be chosen without them.
  int32_t columns = 0;
  std::optional<GatedMulticast> multicast = {};
};

constexpr int32_t GatedSpanBytes(int32_t row_blocks, int32_t columns) {
  return (columns + row_blocks * kGatedRowBlock) * 128;
}

// Spans of k that are fetched and multiplied together, as long as the ring holds several of them.
constexpr int32_t GatedSpans(int32_t row_blocks, int32_t columns) {
  constexpr int32_t kMaxBytes = 48 << 10;
  return 2 * GatedSpanBytes(row_blocks, columns) <= kMaxBytes ? 2 : 1;
}

// Beyond it a thread's sums leave no registers.
constexpr int32_t GatedMaxColumns(int32_t row_blocks) {
  return row_blocks <= 2 ? 256 : row_blocks == 3 ? 192 : 128;
}

// For a product that GatedGemmSupports.
GatedPlan PlanGatedGemm(const GemmProblem& problem, const GatedLimits& limits);

}  // namespace baton::cuda
