#include "kernels/cuda/gemm/sequential_gemm.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/portable_gemm.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "tests/gpu/gemm_fixture.h"
#include "tests/gpu/test_device.h"

// GEMMs in deterministic mode: the bits of a row do not depend on the number of rows.
namespace baton::cuda {
namespace {

constexpr int32_t kMaxRows = 2200;

using Case = testing::GemmCase;
using Fixture = testing::GemmFixture;

// In FP8, the reader of the result applies the scales.
GemmProblem Unscaled(GemmProblem problem) {
  problem.x_scales = nullptr;
  problem.weight_scales = nullptr;
  return problem;
}

// So that the reference needs none.
void SetScalesToOne(const GemmProblem& problem) {
  const std::vector<float> ones(static_cast<size_t>(std::max(problem.rows, problem.n)), 1.0f);
  const auto set = [&](const float* scales, int32_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    EXPECT_EQ(cudaMemcpy(const_cast<float*>(scales), ones.data(), bytes, cudaMemcpyHostToDevice),
              cudaSuccess);
  };
  set(problem.x_scales, problem.rows);
  set(problem.weight_scales, problem.n);
}

std::unique_ptr<Gemm> Open(const DeviceProperties& device) {
  auto gemm = Gemm::Create(device, {.deterministic = true});
  EXPECT_TRUE(gemm.ok()) << gemm.status().ToString();
  return *std::move(gemm);
}

Fixture::Launch Through(Gemm& gemm) {
  return [&gemm](const GemmProblem& problem) {
    const GemmProblem unscaled = Unscaled(problem);
    EXPECT_TRUE(gemm.Prepare(unscaled, nullptr).ok());
    return gemm.Launch(unscaled, nullptr);
  };
}

Fixture::Launch Sequential(const DeviceProperties& device) {
  return [device](const GemmProblem& problem) {
    return LaunchSequentialGemm(Unscaled(problem), device, nullptr);
  };
}

void ExpectSameBitsForAllRows(const Case& c, const DeviceProperties& device, KernelId kernel) {
  Fixture fixture(c, kMaxRows);
  ASSERT_EQ(SequentialKernel(Unscaled(fixture.Make(kMaxRows)), device), kernel);
  const auto gemm = Open(device);
  const Fixture::Launch sequential = Sequential(device);
  for (const int32_t rows :
       {1,   2,   7,   8,   9,   31,  33,  64,  65,   80,   96,   100,  128,
        129, 200, 256, 257, 300, 320, 500, 512, 1000, 1024, 1025, 2048, 2200}) {
    fixture.ExpectSameBits(rows, Through(*gemm), sequential);
  }
}

class SequentialGemmTest : public testing::HopperTest,
                           public ::testing::WithParamInterface<Case> {};

TEST_P(SequentialGemmTest, TheBitsOfARowDoNotDependOnTheNumberOfRows) {
  ExpectSameBitsForAllRows(GetParam(), TestedDevice(), KernelId::kSequentialGemm);
  if (GetParam().fp8) return;
  Fixture fixture(GetParam(), kMaxRows);
  fixture.Expect(kMaxRows, Sequential(fixture.device()));
}

// Another order of sums must be found, or the test above could not fail.
TEST_P(SequentialGemmTest, AnotherOrderOfSumsIsFound) {
  Fixture fixture(GetParam(), 64);
  const auto bits = SequentialBits::Create(Unscaled(fixture.Make(64)), fixture.device(), nullptr);
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

// Why a shape may use both: on Hopper, wgmma and mma.sync give the same bits in bf16.
TEST_P(SequentialGemmTest, ThePortableGemmGivesTheSameBits) {
  if (GetParam().fp8) GTEST_SKIP() << "FP8: wgmma keeps fewer bits of a sum than mma.sync";
  Fixture fixture(GetParam(), 300);
  const auto portable = [](const GemmProblem& problem) {
    return LaunchPortableGemm(problem, nullptr);
  };
  for (const int32_t rows : {1, 17, 64, 65, 300}) {
    fixture.ExpectSameBits(rows, portable, Sequential(fixture.device()));
  }
}

// On any GPU, as if it had no kernels but the portable ones.
class PortableGemmTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!HaveGpu()) GTEST_SKIP() << "no GPU: the portable GEMM was NOT tested";
    device_ = TestedDevice();
    device_.portable = true;
    if (GetParam().fp8 && !SupportsFp8(device_)) {
      GTEST_SKIP() << "no FP8 on this GPU: the portable GEMM was NOT tested with it";
    }
  }

  DeviceProperties device_;
};

TEST_P(PortableGemmTest, TheBitsOfARowDoNotDependOnTheNumberOfRows) {
  ExpectSameBitsForAllRows(
      GetParam(), device_, GetParam().fp8 ? KernelId::kPortableFp8Gemm : KernelId::kPortableGemm);
}

TEST_P(PortableGemmTest, GivesTheProductAndNothingElse) {
  constexpr int32_t kRows = 200;
  Fixture fixture(GetParam(), kRows);
  if (GetParam().fp8) SetScalesToOne(fixture.Make(kRows));
  for (const int32_t rows : {1, 16, 17, 64, 65, 128, kRows}) {
    fixture.Expect(rows, [](const GemmProblem& problem) {
      return LaunchPortableGemm(Unscaled(problem), nullptr);
    });
  }
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

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    PortableGemmTest,
    ::testing::Values(Case{.name = "small", .n = 96, .k = 576, .out_gap = 8},
                      // Neither rows nor outputs are aligned, and n and k have no divisor.
                      Case{.name = "odd", .n = 61, .k = 131, .x_gap = 2, .out_gap = 1},
                      Case{.name = "odd_f32", .n = 577, .k = 72, .bias = true, .f32 = true},
                      Case{.name = "bias", .n = 960, .k = 576, .bias = true},
                      Case{.name = "qkv", .n = 6144, .k = 4096},
                      Case{.name = "o", .n = 4096, .k = 4096, .accumulate = true, .f32 = true},
                      Case{.name = "down", .n = 4096, .k = 14336},
                      Case{.name = "small_fp8", .n = 96, .k = 640, .out_gap = 8, .fp8 = true},
                      Case{.name = "qkv_fp8", .n = 6144, .k = 4096, .fp8 = true},
                      Case{.name = "down_fp8", .n = 4096, .k = 14336, .fp8 = true}),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace baton::cuda
