#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/gemm/few_outputs_plan.h"
#include "kernels/cuda/gemm/gated_plan.h"
#include "kernels/cuda/gemm/skinny_plan.h"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

constexpr int32_t kMaxShared = 227 << 10;

// `limits` on an H200.
SkinnyLimits OnH200(SkinnyLimits limits = {}) {
  limits.blocks = 132;
  limits.clusters_of_2 = 66;
  limits.clusters_of_4 = 30;
  return limits;
}
GatedLimits GatedOnH200(GatedLimits limits = {}) {
  limits.blocks = 132;
  limits.clusters_of_2 = 66;
  return limits;
}

std::vector<SkinnyLimits> Devices() {
  return {{.blocks = 132, .clusters_of_2 = 66, .clusters_of_4 = 32},
          {.blocks = 132, .clusters_of_2 = 60, .clusters_of_4 = 24},
          {.blocks = 114, .clusters_of_2 = 57, .clusters_of_4 = 0},
          {.blocks = 16, .clusters_of_2 = 8, .clusters_of_4 = 3},
          OnH200({.cluster = 4}),
          OnH200({.cluster = 1, .tile_rows = 48, .matrices = 8}),
          OnH200({.cluster = 2, .matrices = 1}),
          OnH200({.cluster = 1, .stage_bytes = 4 << 10}),
          OnH200({.shared_bytes = 112 << 10, .cluster = 4, .stage_bytes = 64 << 10})};
}

void ExpectSound(const SkinnyPlan& plan, const GemmProblem& problem, const SkinnyLimits& limits) {
  SCOPED_TRACE(::testing::Message() << problem.rows << " rows, n " << problem.n << ", k "
                                    << problem.k << ", pairs " << problem.silu_mul);
  const int32_t halves = problem.silu_mul ? 2 : 1;
  const int32_t k_spans = problem.k / SpanNumbers(problem);
  EXPECT_GE(plan.row_group, problem.rows);
  EXPECT_LE(plan.row_group, kSkinnyMaxRows);
  // Every output is in a tile, every tile is computed, and every span of k by exactly one block.
  EXPECT_GE(plan.tiles * plan.tile_outputs, problem.n / halves);
  EXPECT_LT((plan.tiles - 1) * plan.tile_outputs, problem.n / halves);
  EXPECT_EQ(plan.tile_outputs % 8, 0);
  EXPECT_LE(plan.tile_outputs * halves, kSkinnyMaxTileRows);
  EXPECT_GE(plan.matrices * kWgmmaRows, plan.tile_outputs * halves);
  EXPECT_LE(plan.matrices, 4);
  EXPECT_GE(plan.clusters, 1);
  EXPECT_LE(plan.clusters, plan.tiles);
  EXPECT_LE(plan.clusters * plan.cluster, limits.blocks);
  if (plan.cluster > 1) {
    EXPECT_EQ(plan.tiles, plan.clusters);
    EXPECT_EQ(plan.stages_per_tile * plan.spans * plan.cluster, k_spans);
  } else {
    EXPECT_GE(plan.stages_per_tile * plan.spans, k_spans);
    EXPECT_LT((plan.stages_per_tile - 1) * plan.spans, k_spans);
  }
  // The 128-byte swizzle needs groups of 8 rows of 128 bytes.
  EXPECT_EQ(plan.weight_bytes, plan.spans * plan.tile_outputs * halves * 128);
  EXPECT_EQ(plan.stage_bytes, plan.weight_bytes + plan.spans * plan.row_group * 128);
  EXPECT_EQ(plan.weight_bytes / halves % 1024, 0);
  EXPECT_GE(plan.stages, 2 * plan.warp_groups);
  EXPECT_EQ(plan.stages % plan.warp_groups, 0);
  EXPECT_LE(plan.stages, kSkinnyMaxStages);
  EXPECT_LE(plan.spans, 256);
  EXPECT_TRUE(plan.warp_groups == 1 || plan.warp_groups == 2 ||
              (plan.warp_groups == 4 && plan.matrices == 1));
  // Partial sums are stored behind the ring, or in it if each block has only one tile.
  const int32_t ring = plan.stages * plan.stage_bytes;
  const int32_t sums = plan.warp_groups * halves * plan.row_group * (plan.tile_outputs + 4) * 4;
  if (plan.splits_k()) {
    EXPECT_TRUE(plan.partials_offset == ring || plan.tiles == plan.clusters);
    EXPECT_LE(kSkinnyBarrierBytes + plan.partials_offset + sums, plan.shared_bytes);
  } else {
    EXPECT_LE(kSkinnyBarrierBytes + ring + kWarpGroupWarps * plan.row_group * kSkinnyStagingBytes,
              plan.shared_bytes);
  }
  // A WGMMA that reads beyond the last rows of a tile stays inside the shared memory.
  EXPECT_GE(plan.shared_bytes,
            kSkinnyBarrierBytes + plan.stages * plan.stage_bytes + kWgmmaRows * 128);
  EXPECT_LE(plan.shared_bytes, kMaxShared);
}

TEST(SkinnyPlanTest, IsSoundForAllShapes) {
  for (const SkinnyLimits& limits : Devices()) {
    for (const int32_t n :
         {16, 96, 576, 1056, 1536, 3072, 4096, 6144, 8192, 11008, 28672, 49152, 128256}) {
      for (const int32_t k : {64, 128, 192, 576, 1088, 4096, 14336}) {
        for (const bool pairs : {false, true}) {
          GemmProblem problem;
          problem.n = n;
          problem.k = k;
          problem.silu_mul = pairs;
          for (const int32_t rows : {1, 8, 9, 17, 33, 64}) {
            problem.rows = rows;
            for (const DType type : {DType::kBF16, DType::kFp8}) {
              problem.weight_dtype = type;
              if (k % SpanNumbers(problem) != 0) continue;
              ExpectSound(PlanSkinnyGemm(problem, limits), problem, limits);
            }
          }
        }
      }
    }
  }
}

TEST(SkinnyPlanTest, FillsTheDeviceWithoutSharingOutKForFewestRows) {
  GemmProblem problem;
  problem.rows = 8;
  problem.k = 4096;
  for (const int32_t n : {4096, 6144, 28672}) {
    problem.n = n;
    const SkinnyPlan plan = PlanSkinnyGemm(problem, OnH200());
    EXPECT_EQ(plan.cluster, 1);
    EXPECT_EQ(plan.tiles, 128);
    EXPECT_EQ(plan.tile_outputs, n / 128);
  }
}

TEST(SkinnyPlanTest, SharesOutKWhereXWouldBeReadTooOften) {
  GemmProblem problem;
  problem.rows = 64;
  problem.n = 4096;
  problem.k = 4096;
  EXPECT_EQ(PlanSkinnyGemm(problem, OnH200()).cluster, 1);
  problem.k = 14336;
  const SkinnyPlan plan = PlanSkinnyGemm(problem, OnH200());
  EXPECT_EQ(plan.cluster, 2);
  EXPECT_EQ(plan.tile_outputs, 64);
}

class GatedPlanTest : public ::testing::TestWithParam<DType> {};

TEST_P(GatedPlanTest, IsSoundForAllShapes) {
  for (const GatedLimits& limits : {GatedOnH200(),
                                    GatedLimits{.blocks = 114, .clusters_of_2 = 0},
                                    GatedOnH200({.multicast = GatedMulticast::kX}),
                                    GatedOnH200({.multicast = GatedMulticast::kWeights}),
                                    GatedOnH200({.columns = 64})}) {
    for (const int32_t n : {16, 1168, 3072, 28672}) {
      for (const int32_t k_spans : {1, 17, 224}) {
        for (const int32_t rows : {1, 8, 33, 64, 65, 129, 250, 256}) {
          SCOPED_TRACE(::testing::Message() << rows << " rows, n " << n << ", spans " << k_spans);
          GemmProblem problem;
          problem.x_dtype = problem.weight_dtype = GetParam();
          problem.n = n;
          problem.k = k_spans * SpanNumbers(problem);
          problem.rows = rows;
          problem.silu_mul = true;
          const GatedPlan plan = PlanGatedGemm(problem, limits);
          const int32_t spans = GatedSpans(plan.row_blocks, plan.columns);
          // Every output is in a tile, every tile is computed, and all of k and x is loaded.
          EXPECT_GE(plan.tiles * plan.columns, n);
          EXPECT_LT((plan.tiles - 1) * plan.columns, n);
          EXPECT_LE(plan.clusters * plan.cluster(), limits.blocks);
          EXPECT_GE(plan.stages_per_tile * spans, k_spans);
          EXPECT_LT((plan.stages_per_tile - 1) * spans, k_spans);
          EXPECT_GE(plan.x_rows * plan.cluster(), rows);
          EXPECT_LE(plan.x_rows * plan.neighbours(), plan.row_blocks * kGatedRowBlock);
          EXPECT_EQ(plan.x_rows % 8, 0);
          EXPECT_LE(plan.columns, GatedMaxColumns(plan.row_blocks));
          EXPECT_GE(plan.stages, 3);
          EXPECT_LE(plan.stages, kGatedMaxStages);
          EXPECT_LE(plan.shared_bytes, limits.shared_bytes);
          EXPECT_GE(plan.shared_bytes,
                    kGatedBarrierBytes +
                        plan.stages * spans * GatedSpanBytes(plan.row_blocks, plan.columns));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operands, GatedPlanTest, ::testing::Values(DType::kBF16, DType::kFp8));

TEST(GatedPlanChoiceTest, SharesOutputsOutEvenly) {
  GemmProblem problem;
  problem.n = 28672;
  problem.k = 4096;
  problem.silu_mul = true;
  problem.rows = 64;
  EXPECT_EQ(PlanGatedGemm(problem, GatedOnH200()).tiles, 128);  // one tile for nearly every SM
  problem.rows = 256;
  const GatedPlan plan = PlanGatedGemm(problem, GatedOnH200());
  EXPECT_EQ(plan.multicast, GatedMulticast::kWeights);
  EXPECT_EQ(plan.tiles, 128);  // two tiles for nearly every cluster
  EXPECT_EQ(plan.row_blocks, 2);
  problem.x_dtype = problem.weight_dtype = DType::kFp8;
  const GatedPlan quantized = PlanGatedGemm(problem, GatedOnH200());
  EXPECT_EQ(quantized.tiles, 256);
  EXPECT_EQ(quantized.multicast, GatedMulticast::kNone);
}

TEST(FewOutputsPlanTest, EveryOutputOfEveryRowIsInATileAndAllTilesRunAtATime) {
  constexpr int32_t kSms = 132;
  for (const int32_t n : {8, 1024, 1032, 2048, 3072, 4096, 6144, 14336}) {
    for (const int32_t k : {64, 2624, 4096, 14336}) {
      for (int32_t rows = 1; rows <= kFewOutputsMaxRows + 1; ++rows) {
        SCOPED_TRACE(::testing::Message() << rows << " rows, n " << n << ", k " << k);
        GemmProblem problem;
        problem.rows = rows;
        problem.n = n;
        problem.k = k;
        const auto plan = PlanFewOutputsGemm(problem, kSms);
        const int32_t widest = CeilDiv(n, 64) * CeilDiv(rows, kFewOutputsRowGroup);
        ASSERT_EQ(plan.has_value(), rows <= kFewOutputsMaxRows && widest <= kSms);
        if (!plan) continue;
        EXPECT_LE(plan->blocks(), kSms);
        EXPECT_GE(plan->tiles * plan->columns, n);
        EXPECT_LT((plan->tiles - 1) * plan->columns, n);
        EXPECT_GE(plan->row_groups * plan->x_rows, rows);
        EXPECT_LE(plan->x_rows, kFewOutputsRowGroup);
        EXPECT_EQ(plan->x_rows % 8, 0);
        EXPECT_GE(plan->stages_per_tile * FewOutputsSpans(plan->columns), k / kSpanNumbers);
        EXPECT_GE(plan->stages, 3);
        EXPECT_LE(plan->stages, kFewOutputsMaxStages);
        EXPECT_LE(plan->shared_bytes, kMaxShared);
        EXPECT_GE(plan->shared_bytes,
                  kFewOutputsBarrierBytes + plan->stages * FewOutputsStageBytes(plan->columns));
      }
    }
  }
}

TEST(FewOutputsPlanTest, DividesTheWorkAmongAsManySmsAsItCan) {
  GemmProblem problem;
  problem.n = 2048;
  problem.k = 14336;
  for (const auto& [rows, columns] : {std::pair{1, 16}, {64, 16}, {65, 32}, {129, 48}, {256, 64}}) {
    problem.rows = rows;
    const auto plan = PlanFewOutputsGemm(problem, 132);
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(plan->columns, columns) << rows << " rows";
    EXPECT_GE(plan->blocks(), 128) << rows << " rows";
  }
}

}  // namespace
}  // namespace baton::cuda
