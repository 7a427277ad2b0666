#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/skinny_gemm_layout.h"
#include "kernels/cuda/skinny_gemm_plan.h"

namespace baton::cuda {
namespace {

constexpr int32_t kMostShared = 227 << 10;

std::vector<SkinnyGemmLimits> Devices() {
  return {{.blocks = 132, .clusters_of_2 = 66, .clusters_of_4 = 32},
          {.blocks = 132, .clusters_of_2 = 60, .clusters_of_4 = 24},
          {.blocks = 114, .clusters_of_2 = 57, .clusters_of_4 = 0},
          {.blocks = 16, .clusters_of_2 = 8, .clusters_of_4 = 3},
          {.enough_tiles = 0},
          {.enough_tiles = 100, .shared_bytes = 120 << 10}};
}

void ExpectSound(const SkinnyGemmPlan& plan,
                 const Product& product,
                 const SkinnyGemmLimits& limits) {
  SCOPED_TRACE(::testing::Message() << product.rows << " rows, n " << product.n << ", k "
                                    << product.k << ", pairs " << product.silu_mul);
  EXPECT_EQ(plan.units * plan.unit_tiles * kSkinnyTileRows, product.n);
  EXPECT_GE(plan.clusters, 1);
  EXPECT_LE(plan.clusters, plan.units);
  EXPECT_LE(plan.cluster, product.k / kSkinnySpan);
  EXPECT_EQ(plan.row_groups * plan.k_groups, kSkinnyWarps);
  EXPECT_GE(plan.column_groups * kSkinnyGroupColumns, product.rows);
  EXPECT_LE(plan.pass_units, plan.row_groups * (kSkinnyTilesPerWarp / plan.unit_tiles));
  const int32_t most_units = (plan.units + plan.clusters - 1) / plan.clusters;
  if (!plan.direct()) {
    EXPECT_EQ(plan.pass_units, most_units);
    EXPECT_GE(plan.received_slots * plan.cluster, plan.pass_units);
  }
  // Every warp has steps of 16 of k in a full stage, in the same order for every stage.
  EXPECT_EQ(plan.spans * 4 % plan.k_groups, 0);
  EXPECT_GE(plan.stages, limits.shared_bytes == kMostShared ? 3 : 2);
  EXPECT_LE(plan.stages, kSkinnyMostStages);
  EXPECT_EQ(plan.span_bytes % 1024, 0);
  EXPECT_LE(plan.shared_bytes, kMostShared);
}

TEST(SkinnyGemmPlanTest, IsSoundForAllShapes) {
  for (const SkinnyGemmLimits& limits : Devices()) {
    for (const int32_t n :
         {32, 96, 576, 1056, 1536, 3072, 4096, 6144, 8192, 11008, 28672, 128256}) {
      for (const int32_t k : {64, 128, 192, 576, 1088, 4096, 14336}) {
        for (const bool pairs : {false, true}) {
          Product product;
          product.n = n;
          product.k = k;
          product.silu_mul = pairs;
          const float norm_weight = 1;
          SkinnyGemmPlan first;
          for (const int32_t rows : {1, 8, 9, 17, 33, 64}) {
            product.rows = rows;
            for (const float* norm : {static_cast<const float*>(nullptr), &norm_weight}) {
              product.norm_weight = norm;
              const SkinnyGemmPlan plan = PlanSkinnyGemm(product, limits);
              ExpectSound(plan, product, limits);
              if (rows == 1) first = plan;
              EXPECT_EQ(plan.cluster, first.cluster);
              EXPECT_EQ(plan.k_groups, first.k_groups);
            }
          }
        }
      }
    }
  }
}

TEST(SkinnyGemmPlanTest, KnownShapesFillTheDevice) {
  struct Known {
    int32_t n;
    int32_t k;
    bool pairs;
    int32_t cluster;
    int32_t clusters;
  };
  for (const Known& known : {Known{6144, 4096, false, 4, 30},
                             Known{4096, 4096, false, 4, 30},
                             Known{28672, 4096, true, 1, 132},
                             Known{4096, 14336, false, 4, 30},
                             Known{128256, 4096, false, 1, 132}}) {
    Product product;
    product.rows = 64;
    product.n = known.n;
    product.k = known.k;
    product.silu_mul = known.pairs;
    const SkinnyGemmPlan plan = PlanSkinnyGemm(product, {});
    EXPECT_EQ(plan.cluster, known.cluster) << known.n;
    EXPECT_EQ(plan.clusters, known.clusters) << known.n;
  }
}

}  // namespace
}  // namespace baton::cuda
