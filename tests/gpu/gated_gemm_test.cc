#include "kernels/cuda/gated_gemm.h"

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/rounding.h"
#include "tests/gpu/product_world.h"

namespace baton::cuda {
namespace {

using Case = testing::ProductCase;
using World = testing::ProductWorld;

World::Launch With(const GatedLimits& limits) {
  return [limits](const Product& product) {
    return LaunchGatedGemm(product, PlanGatedGemm(product, limits), nullptr);
  };
}

class GatedGemmTest : public testing::HopperTest, public ::testing::WithParamInterface<Case> {};

TEST_P(GatedGemmTest, GivesTheProductAndNothingElse) {
  World world(GetParam(), kGatedMostRows);
  for (const int32_t rows : {1, 33, 40, 64, 65, 100, 128, 129, 190, 193, 256}) {
    ASSERT_TRUE(GatedGemmTakes(world.Make(rows)));
    world.Expect(rows, With(FindGatedLimits(world.processors())));
  }
}

// Plans that the rules would not choose for this shape, but for others.
TEST_P(GatedGemmTest, AnyPlanGivesTheProduct) {
  World world(GetParam(), kGatedMostRows);
  for (const int32_t rows : {3, 47, 127, 192, 250}) {
    for (const int32_t columns : {64, 96, 112, 128, 192, 224, 256}) {
      for (const auto sharing :
           {GatedSharing::kNothing, GatedSharing::kX, GatedSharing::kWeights}) {
        GatedLimits limits = FindGatedLimits(world.processors());
        limits.columns = columns;
        limits.sharing = sharing;
        const int32_t block_rows = sharing == GatedSharing::kWeights ? CeilDiv(rows, 2) : rows;
        if (columns > GatedMostColumns(CeilDiv(block_rows, kGatedRowBlock))) continue;
        const GatedPlan plan = PlanGatedGemm(world.Make(rows), limits);
        ASSERT_EQ(plan.columns, columns);
        ASSERT_EQ(plan.sharing, sharing);
        SCOPED_TRACE(::testing::Message()
                     << columns << " columns, sharing " << static_cast<int>(sharing));
        world.Expect(rows, With(limits));
      }
    }
  }
}

TEST_P(GatedGemmTest, RepeatsItself) {
  World world(GetParam(), kGatedMostRows);
  const World::Launch launch = With(FindGatedLimits(world.processors()));
  for (const int32_t rows : {40, 128, 255}) world.ExpectRepeats(rows, launch);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    GatedGemmTest,
    ::testing::Values(
        Case{.name = "tiny", .n = 16, .k = 64, .silu_mul = true},
        Case{.name = "odd_k", .n = 1168, .k = 1088, .silu_mul = true, .x_gap = 24},
        Case{.name = "small", .n = 3072, .k = 576, .silu_mul = true, .out_gap = 6},
        Case{.name = "long", .n = 2048, .k = 14336, .silu_mul = true},
        Case{.name = "llama_8b", .n = 28672, .k = 4096, .silu_mul = true},
        Case{.name = "tiny_e4m3", .n = 16, .k = 128, .silu_mul = true, .quantized = true},
        Case{.name = "odd_k_e4m3",
             .n = 1168,
             .k = 1152,
             .silu_mul = true,
             .out_gap = 6,
             .quantized = true},
        Case{.name = "llama_8b_e4m3", .n = 28672, .k = 4096, .silu_mul = true, .quantized = true}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(GatedGemmTakesTest, RefusesWhatDoesNotFit) {
  alignas(16) static __nv_bfloat16 numbers[16];
  static float scale = 1;
  Product good;
  good.x = good.weight = numbers;
  good.silu_mul = true;
  good.rows = 256;
  good.n = 96;
  good.k = good.x_stride = 192;
  good.out_stride = 48;
  EXPECT_TRUE(GatedGemmTakes(good));
  const auto refused = [&](const auto& change) {
    Product product = good;
    change(product);
    return !GatedGemmTakes(product);
  };
  EXPECT_TRUE(refused([](Product& p) { p.silu_mul = false; }));
  EXPECT_TRUE(refused([](Product& p) { p.rows = 0; }));
  EXPECT_TRUE(refused([](Product& p) { p.rows = 257; }));
  EXPECT_TRUE(refused([](Product& p) { p.n = 104; }));
  EXPECT_TRUE(refused([](Product& p) { p.k = 160; }));
  EXPECT_TRUE(refused([](Product& p) { p.x_stride = 196; }));
  EXPECT_TRUE(refused([](Product& p) { p.out_stride = 49; }));
  EXPECT_TRUE(refused([](Product& p) { p.x = numbers + 1; }));
  EXPECT_TRUE(refused([](Product& p) { p.weight = numbers + 4; }));
  EXPECT_TRUE(refused([](Product& p) { p.bias = numbers; }));
  EXPECT_TRUE(refused([](Product& p) { p.accumulate = true; }));
  EXPECT_TRUE(refused([](Product& p) { p.out_dtype = DType::kF32; }));
  const auto in_fp8 = [](Product& p) {
    p.x_dtype = p.weight_dtype = DType::kF8;
    p.x_scales = p.weight_scales = &scale;
    p.k = p.x_stride = 256;
  };
  EXPECT_FALSE(refused(in_fp8));
  EXPECT_TRUE(refused([&](Product& p) { in_fp8(p), p.k = 192; }));
  EXPECT_TRUE(refused([&](Product& p) { in_fp8(p), p.x_stride = 264; }));
  EXPECT_TRUE(refused([&](Product& p) { in_fp8(p), p.x_dtype = DType::kBF16; }));
  EXPECT_TRUE(refused([&](Product& p) { in_fp8(p), p.x_scales = nullptr; }));
  EXPECT_TRUE(refused([&](Product& p) { in_fp8(p), p.weight_scales = nullptr; }));
}

}  // namespace
}  // namespace baton::cuda
