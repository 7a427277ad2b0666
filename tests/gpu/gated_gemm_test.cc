#include "kernels/cuda/gemm/gated_gemm.h"

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/primitives/rounding.h"
#include "tests/gpu/gemm_fixture.h"

namespace baton::cuda {
namespace {

using Case = testing::GemmCase;
using Fixture = testing::GemmFixture;

Fixture::Launch With(const GatedLimits& limits) {
  return [limits](const GemmProblem& problem) {
    return LaunchGatedGemm(problem, PlanGatedGemm(problem, limits), nullptr);
  };
}

class GatedGemmTest : public testing::HopperTest, public ::testing::WithParamInterface<Case> {};

TEST_P(GatedGemmTest, GivesTheProductAndNothingElse) {
  Fixture fixture(GetParam(), kGatedMaxRows);
  for (const int32_t rows : {1, 33, 40, 64, 65, 100, 128, 129, 190, 193, 256}) {
    ASSERT_TRUE(GatedGemmSupports(fixture.Make(rows)));
    fixture.Expect(rows, With(FindGatedLimits(fixture.sm_count())));
  }
}

// Also plans that PlanGatedGemm would choose only for other shapes.
TEST_P(GatedGemmTest, AnyPlanGivesTheProduct) {
  Fixture fixture(GetParam(), kGatedMaxRows);
  for (const int32_t rows : {3, 47, 127, 192, 250}) {
    for (const int32_t columns : {64, 96, 112, 128, 192, 224, 256}) {
      for (const auto multicast :
           {GatedMulticast::kNone, GatedMulticast::kX, GatedMulticast::kWeights}) {
        GatedLimits limits = FindGatedLimits(fixture.sm_count());
        limits.columns = columns;
        limits.multicast = multicast;
        const int32_t block_rows = multicast == GatedMulticast::kWeights ? CeilDiv(rows, 2) : rows;
        if (columns > GatedMaxColumns(CeilDiv(block_rows, kGatedRowBlock))) continue;
        const GatedPlan plan = PlanGatedGemm(fixture.Make(rows), limits);
        ASSERT_EQ(plan.columns, columns);
        ASSERT_EQ(plan.multicast, multicast);
        SCOPED_TRACE(::testing::Message()
                     << columns << " columns, sharing " << static_cast<int>(multicast));
        fixture.Expect(rows, With(limits));
      }
    }
  }
}

TEST_P(GatedGemmTest, RepeatsItself) {
  Fixture fixture(GetParam(), kGatedMaxRows);
  const Fixture::Launch launch = With(FindGatedLimits(fixture.sm_count()));
  for (const int32_t rows : {40, 128, 255}) fixture.ExpectRepeats(rows, launch);
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
        Case{.name = "tiny_e4m3", .n = 16, .k = 128, .silu_mul = true, .fp8 = true},
        Case{.name = "odd_k_e4m3",
             .n = 1168,
             .k = 1152,
             .silu_mul = true,
             .out_gap = 6,
             .fp8 = true},
        Case{.name = "llama_8b_e4m3", .n = 28672, .k = 4096, .silu_mul = true, .fp8 = true}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(GatedGemmSupportsTest, RefusesWhatDoesNotFit) {
  alignas(16) static __nv_bfloat16 numbers[16];
  static float scale = 1;
  GemmProblem good;
  good.x = good.weight = numbers;
  good.silu_mul = true;
  good.rows = 256;
  good.n = 96;
  good.k = good.x_stride = 192;
  good.out_stride = 48;
  EXPECT_TRUE(GatedGemmSupports(good));
  const auto refused = [&](const auto& change) {
    GemmProblem problem = good;
    change(problem);
    return !GatedGemmSupports(problem);
  };
  EXPECT_TRUE(refused([](GemmProblem& p) { p.silu_mul = false; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.rows = 0; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.rows = 257; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.n = 104; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.k = 160; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.x_stride = 196; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.out_stride = 49; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.x = numbers + 1; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.weight = numbers + 4; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.bias = numbers; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.accumulate = true; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.out_dtype = DType::kF32; }));
  const auto in_fp8 = [](GemmProblem& p) {
    p.x_dtype = p.weight_dtype = DType::kFp8;
    p.x_scales = p.weight_scales = &scale;
    p.k = p.x_stride = 256;
  };
  EXPECT_FALSE(refused(in_fp8));
  EXPECT_TRUE(refused([&](GemmProblem& p) { in_fp8(p), p.k = 192; }));
  EXPECT_TRUE(refused([&](GemmProblem& p) { in_fp8(p), p.x_stride = 264; }));
  EXPECT_TRUE(refused([&](GemmProblem& p) { in_fp8(p), p.x_dtype = DType::kBF16; }));
  EXPECT_TRUE(refused([&](GemmProblem& p) { in_fp8(p), p.x_scales = nullptr; }));
  EXPECT_TRUE(refused([&](GemmProblem& p) { in_fp8(p), p.weight_scales = nullptr; }));
}

}  // namespace
}  // namespace baton::cuda
