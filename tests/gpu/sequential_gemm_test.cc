#include "kernels/cuda/gemm/sequential_gemm.h"

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "tests/gpu/gemm_fixture.h"
#include "tests/gpu/test_device.h"

// GEMMs in deterministic mode: the bits of a row do not depend on the number of rows.
namespace baton::cuda {
namespace {

constexpr int32_t kMaxRows = 2200;

using Case = testing::GemmCase;
using Fixture = testing::GemmFixture;

class SequentialGemmTest : public testing::HopperTest, public ::testing::WithParamInterface<Case> {
 protected:
  // In FP8, the reader of the result applies the scales.
  static GemmProblem Unscaled(GemmProblem problem) {
    problem.x_scales = nullptr;
    problem.weight_scales = nullptr;
    return problem;
  }
  static std::unique_ptr<Gemm> Open() {
    auto gemm = Gemm::Create(TestedDevice(), {.deterministic = true});
    EXPECT_TRUE(gemm.ok()) << gemm.status().ToString();
    return *std::move(gemm);
  }
  static Fixture::Launch Through(Gemm& gemm) {
    return [&gemm](const GemmProblem& problem) {
      const GemmProblem unscaled = Unscaled(problem);
      EXPECT_TRUE(gemm.Prepare(unscaled, nullptr).ok());
      return gemm.Launch(unscaled, nullptr);
    };
  }
  static Fixture::Launch Sequential(int sm_count) {
    return [sm_count](const GemmProblem& problem) {
      return LaunchSequentialGemm(Unscaled(problem), sm_count, nullptr);
    };
  }
};

TEST_P(SequentialGemmTest, TheBitsOfARowDoNotDependOnTheNumberOfRows) {
  Fixture fixture(GetParam(), kMaxRows);
  ASSERT_TRUE(SequentialGemmSupports(Unscaled(fixture.Make(kMaxRows))));
  const auto gemm = Open();
  const Fixture::Launch sequential = Sequential(fixture.sm_count());
  if (!GetParam().fp8) fixture.Expect(kMaxRows, sequential);
  for (const int32_t rows :
       {1,   2,   7,   8,   9,   31,  33,  64,  65,   80,   96,   100,  128,
        129, 200, 256, 257, 300, 320, 500, 512, 1000, 1024, 1025, 2048, 2200}) {
    fixture.ExpectSameBits(rows, Through(*gemm), sequential);
  }
}

// Another order of sums must be found, or the test above could not fail.
TEST_P(SequentialGemmTest, AnotherOrderOfSumsIsFound) {
  Fixture fixture(GetParam(), 64);
  const auto bits = SequentialBits::Create(Unscaled(fixture.Make(64)), fixture.sm_count(), nullptr);
  ASSERT_TRUE(bits.ok()) << bits.status().ToString();
  const auto with_warp_groups = [&](int32_t matrices) {
    return [&fixture, matrices](const GemmProblem& problem) {
      SkinnyLimits limits = FindSkinnyLimits(fixture.sm_count());
      limits.cluster = 1;
      limits.matrices = matrices;
      const SkinnyPlan plan = PlanSkinnyGemm(problem, limits);
      EXPECT_EQ(plan.warp_groups > 1, matrices > 1);
      return LaunchSkinnyGemm(problem, plan, nullptr) == cudaSuccess;
    };
  };
  EXPECT_TRUE(*(*bits)->Match(64, with_warp_groups(1)));
  EXPECT_TRUE(*(*bits)->Match(5, with_warp_groups(1)));
  EXPECT_FALSE(*(*bits)->Match(64, with_warp_groups(8)));
  EXPECT_FALSE(*(*bits)->Match(64, [](const GemmProblem& /*problem*/) { return false; }));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    SequentialGemmTest,
    ::testing::Values(Case{.name = "small", .n = 96, .k = 576, .out_gap = 8},
                      Case{.name = "odd_k", .n = 576, .k = 1088, .f32 = true},
                      Case{.name = "bias", .n = 960, .k = 576, .bias = true},
                      Case{.name = "qkv", .n = 6144, .k = 4096},
                      Case{.name = "o", .n = 4096, .k = 4096, .accumulate = true, .f32 = true},
                      Case{.name = "down", .n = 4096, .k = 14336},
                      Case{.name = "qkv_of_two_ranks", .n = 3072, .k = 4096, .bias = true},
                      Case{.name = "o_of_two_ranks", .n = 2048, .k = 4096, .out_gap = 8},
                      Case{.name = "down_of_two_ranks", .n = 2048, .k = 14336},
                      Case{.name = "few_outputs", .n = 1032, .k = 2624, .f32 = true},
                      Case{.name = "qkv_fp8", .n = 6144, .k = 4096, .fp8 = true},
                      Case{.name = "down_fp8", .n = 4096, .k = 14336, .fp8 = true}));

}  // namespace
}  // namespace baton::cuda
