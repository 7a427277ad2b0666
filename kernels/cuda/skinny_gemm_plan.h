#pragma once

#include <cstdint>

#include "kernels/cuda/product.h"

namespace baton::cuda {

// How many clusters of 1, 2 and 4 thread blocks that fill a multiprocessor each run at a time.
struct SkinnyGemmLimits {
  int32_t blocks = 132;
  int32_t clusters_of_2 = 66;
  int32_t clusters_of_4 = 30;
  // Tiles that a block should have. With fewer, reading x costs more beside reading the weight;
  // with larger clusters, passing sums on does.
  int32_t enough_tiles = 7;
  // Shared memory to use: a longer ring bridges longer gaps, a shorter one leaves room for a block
  // of the predecessor.
  int32_t shared_bytes = 227 << 10;
};

// Who does what in a product of few rows. The weight's rows are cut into tiles of 16; a unit is one
// tile, or with silu_mul one of the gate and one of the up part. Clusters share out the units, the
// blocks of a cluster share out k; in a block `row_groups` groups of warps share out the tiles, and
// the warps of a group share out k again. What decides the order of a sum, `cluster` and
// `k_groups`, depends on the weight and the device alone.
struct SkinnyGemmPlan {
  int32_t cluster = 1;        // blocks
  int32_t clusters = 0;       // in the grid
  int32_t units = 0;          // of all clusters
  int32_t unit_tiles = 1;     // 1 or 2
  int32_t pass_units = 0;     // the most that a block does at once
  int32_t row_groups = 8;     // a power of two
  int32_t k_groups = 1;       // warps of a row group
  int32_t column_groups = 1;  // of 8 rows of x
  int32_t spans = 1;          // pieces of 64 numbers of k in a stage of the ring
  int32_t span_bytes = 0;
  int32_t stages = 0;
  // Offsets in the ring's memory, once it is idle: sums that warps of a row group pass on, and sums
  // that blocks of a cluster pass on. Before them: sums of squares.
  int32_t partial_at = 0;
  int32_t received_at = 0;
  int32_t received_slots = 0;  // units that a block finishes
  int32_t shared_bytes = 0;

  // Sums stay in one warp from the first to the last number.
  constexpr bool direct() const { return cluster == 1 && k_groups == 1; }
};

// The plan for a product that SkinnyGemmTakes.
SkinnyGemmPlan PlanSkinnyGemm(const Product& product, const SkinnyGemmLimits& limits);

}  // namespace baton::cuda
