#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/gemm/packed_skinny_plan.h"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

PackedLimits OnH200(int32_t cluster = 0, int32_t matrices = 0, int32_t shared = 208 << 10) {
  PackedLimits limits;
  limits.blocks = 132;
  limits.clusters_of_2 = 66;
  limits.clusters_of_4 = 30;
  limits.cluster = cluster;
  limits.tile_matrices = matrices;
  limits.shared_bytes = shared;
  return limits;
}

GemmProblem Problem(const PackedFormat& format, int32_t n, int32_t k, int32_t rows, bool silu) {
  GemmProblem problem;
  problem.packed = format;
  problem.weight_dtype = format.number;
  problem.n = n;
  problem.k = k;
  problem.rows = rows;
  problem.silu_mul = silu;
  return problem;
}

void ExpectSound(const SkinnyPlan& plan, const GemmProblem& problem, const PackedLimits& limits) {
  SCOPED_TRACE(::testing::Message() << problem.rows << " rows, n " << problem.n << ", k "
                                    << problem.k << ", pairs " << problem.silu_mul);
  const PackedFormat& format = problem.packed;
  const int32_t halves = problem.silu_mul ? 2 : 1;
  const auto chunks = static_cast<int32_t>(format.chunks(problem.k));
  EXPECT_GE(plan.row_group, problem.rows);
  // Every output is in a tile, and every tile is computed.
  EXPECT_EQ(plan.tile_outputs * halves, plan.matrices * kTileOutputs);
  EXPECT_GE(plan.tiles * plan.tile_outputs, problem.n / halves);
  EXPECT_LT((plan.tiles - 1) * plan.tile_outputs, problem.n / halves);
  EXPECT_LE(plan.clusters, plan.tiles);
  // Two small blocks fit on an SM.
  const bool small = plan.warp_groups <= 2 && 2 * plan.shared_bytes <= 224 << 10;
  EXPECT_LE(plan.clusters * plan.cluster, small ? 2 * limits.blocks : limits.blocks);
  EXPECT_TRUE(plan.cluster == 1 || plan.tiles == plan.clusters);
  // Each chunk belongs to one thread block, and the stages hold the largest part.
  const int32_t of_stage = StageChunks(plan, format);
  EXPECT_EQ(plan.spans, of_stage * format.tiles_of_chunk());
  EXPECT_EQ(FirstChunk(0, plan.cluster, chunks), 0);
  EXPECT_EQ(FirstChunk(plan.cluster, plan.cluster, chunks), chunks);
  for (int32_t rank = 0; rank < plan.cluster; ++rank) {
    const int32_t part =
        FirstChunk(rank + 1, plan.cluster, chunks) - FirstChunk(rank, plan.cluster, chunks);
    EXPECT_GE(part, 1);
    EXPECT_LE(part, plan.stages_per_tile * of_stage);
  }
  EXPECT_LE(plan.spans, 256);
  // Warp groups: a power of two for each matrix.
  const int32_t parts = plan.warp_groups / plan.matrices;
  EXPECT_EQ(plan.warp_groups, parts * plan.matrices);
  EXPECT_EQ(parts & (parts - 1), 0);
  EXPECT_LE(plan.warp_groups, kPackedMaxWarpGroups);
  // The ring.
  EXPECT_GE(plan.stages, 2 * parts);
  EXPECT_EQ(plan.stages % parts, 0);
  EXPECT_LE(plan.stages, kSkinnyMaxStages);
  EXPECT_EQ(plan.weight_bytes, of_stage * plan.matrices * format.chunk_bytes());
  EXPECT_GE(plan.stage_bytes, plan.weight_bytes + plan.spans * plan.row_group * kSpanBytes);
  EXPECT_EQ(plan.stage_bytes % 1024, 0);
  const int32_t ring = plan.stages * plan.stage_bytes;
  const int32_t sums = parts * halves * plan.row_group * (plan.tile_outputs + 4) * 4;
  EXPECT_TRUE(plan.partials_offset == ring || plan.tiles == plan.clusters);
  EXPECT_LE(kSkinnyBarrierBytes + plan.partials_offset + sums, plan.shared_bytes);
  EXPECT_LE(kSkinnyBarrierBytes + ring, plan.shared_bytes);
  EXPECT_LE(plan.shared_bytes, limits.shared_bytes);
}

TEST(PackedPlanTest, PlansAreSound) {
  const std::vector<PackedFormat> formats = {
      {.number = DType::kU4, .group = 128, .zeros = true},
      {.number = DType::kU4, .group = 32},
      {.number = DType::kI8, .group = 128},
      {.number = DType::kFp4, .scale = ScaleType::kFp8, .group = 16}};
  const std::vector<PackedLimits> devices = {
      OnH200(), OnH200(1), OnH200(2, 1), OnH200(4, 4), OnH200(0, 3), OnH200(0, 2, 160 << 10)};
  for (const PackedFormat& format : formats) {
    for (const auto& [n, k] : {std::pair{64, 64},
                               {6144, 4096},
                               {4096, 14336},
                               {28672, 4096},
                               {2880, 2880},
                               {128256, 2048},
                               {200, 576}}) {
      for (const int32_t rows : {1, 8, 9, 32, 64}) {
        for (const PackedLimits& limits : devices) {
          const GemmProblem plain = Problem(format, n, k, rows, false);
          ExpectSound(PlanPackedGemm(plain, limits), plain, limits);
          if (n % 128 != 0) continue;
          const GemmProblem silu = Problem(format, n, k, rows, true);
          ExpectSound(PlanPackedGemm(silu, limits), silu, limits);
        }
      }
    }
  }
}

TEST(PackedPlanTest, DividesKWhereThereAreFewTiles) {
  const PackedFormat format = {.number = DType::kU4, .group = 128};
  EXPECT_GE(PlanPackedGemm(Problem(format, 4096, 4096, 1, false), OnH200()).cluster, 2);
  EXPECT_EQ(PlanPackedGemm(Problem(format, 28672, 4096, 1, true), OnH200()).cluster, 1);
}

}  // namespace
}  // namespace baton::cuda
