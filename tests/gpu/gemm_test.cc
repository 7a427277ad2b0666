#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "tests/gpu/gemm_fixture.h"
#include "tests/gpu/gemm_reference.h"

namespace baton::cuda {
namespace {

constexpr int32_t kMaxRows = 64;

using Case = testing::GemmCase;
using Fixture = testing::GemmFixture;

Fixture::Launch With(const SkinnyLimits& limits) {
  return [limits](const GemmProblem& problem) {
    return LaunchSkinnyGemm(problem, PlanSkinnyGemm(problem, limits), nullptr);
  };
}

using SkinnyGemmTest = testing::HopperTest;

class SkinnyGemmCaseTest : public SkinnyGemmTest, public ::testing::WithParamInterface<Case> {};

TEST_P(SkinnyGemmCaseTest, GivesTheProductAndNothingElse) {
  Fixture fixture(GetParam(), kMaxRows);
  for (const int32_t rows : {1, 2, 3, 5, 8, 9, 16, 17, 33, 63, 64}) {
    ASSERT_TRUE(SkinnyGemmSupports(fixture.Make(rows)));
    fixture.Expect(rows, With(FindSkinnyLimits(fixture.sm_count())));
  }
}

// Also plans that PlanSkinnyGemm would choose only for other shapes.
TEST_P(SkinnyGemmCaseTest, AnyPlanGivesTheProduct) {
  Fixture fixture(GetParam(), kMaxRows);
  for (const int32_t rows : {3, 64}) {
    for (const int32_t cluster : {1, 2, 4}) {
      for (const int32_t stage_bytes : {4 << 10, 32 << 10}) {
        for (const int32_t matrices : {1, 2, 8}) {
          SkinnyLimits limits = FindSkinnyLimits(fixture.sm_count());
          limits.cluster = cluster;
          limits.stage_bytes = stage_bytes;
          limits.matrices = matrices;
          limits.tile_rows = matrices == 2 ? 48 : kSkinnyMaxTileRows;
          limits.shared_bytes = matrices == 2 ? 112 << 10 : 226 << 10;
          SCOPED_TRACE(::testing::Message()
                       << "clusters of " << cluster << ", " << stage_bytes << ", " << matrices);
          fixture.Expect(rows, With(limits));
        }
      }
    }
  }
}

TEST_P(SkinnyGemmCaseTest, RepeatsItself) {
  Fixture fixture(GetParam(), kMaxRows);
  const Fixture::Launch launch = With(FindSkinnyLimits(fixture.sm_count()));
  for (const int32_t rows : {2, 9, 40}) fixture.ExpectRepeats(rows, launch);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    SkinnyGemmCaseTest,
    ::testing::Values(
        Case{.name = "tiny", .n = 8, .k = 64},
        Case{.name = "small", .n = 96, .k = 576, .out_gap = 8},
        Case{.name = "odd_k", .n = 576, .k = 1088, .f32 = true, .x_gap = 24},
        Case{.name = "bias", .n = 960, .k = 576, .bias = true},
        Case{.name = "pairs", .n = 3072, .k = 576, .silu_mul = true},
        Case{.name = "pairs_plain", .n = 1056, .k = 640, .silu_mul = true, .out_gap = 40},
        Case{.name = "qkv", .n = 6144, .k = 4096},
        Case{.name = "qkv_bias", .n = 6144, .k = 4096, .bias = true, .f32 = true},
        Case{.name = "o", .n = 4096, .k = 4096, .accumulate = true, .x_gap = 2048},
        Case{.name = "gate_up", .n = 28672, .k = 4096, .silu_mul = true},
        Case{.name = "down", .n = 4096, .k = 14336, .accumulate = true},
        Case{.name = "head", .n = 128256, .k = 512, .f32 = true},
        Case{.name = "o_f32", .n = 4096, .k = 4096, .accumulate = true, .f32 = true},
        Case{.name = "head_odd", .n = 49160, .k = 576, .f32 = true},
        Case{.name = "tiny_e4m3", .n = 16, .k = 128, .fp8 = true},
        Case{.name = "small_e4m3", .n = 96, .k = 640, .out_gap = 8, .fp8 = true},
        Case{.name = "odd_k_e4m3", .n = 576, .k = 1152, .f32 = true, .fp8 = true},
        Case{.name = "pairs_e4m3",
             .n = 1056,
             .k = 640,
             .silu_mul = true,
             .out_gap = 40,
             .fp8 = true},
        Case{.name = "qkv_bias_e4m3", .n = 6144, .k = 4096, .bias = true, .f32 = true, .fp8 = true},
        Case{.name = "o_e4m3", .n = 4096, .k = 4096, .accumulate = true, .f32 = true, .fp8 = true},
        Case{.name = "gate_up_e4m3", .n = 28672, .k = 4096, .silu_mul = true, .fp8 = true},
        Case{.name = "down_e4m3",
             .n = 4096,
             .k = 14336,
             .accumulate = true,
             .f32 = true,
             .fp8 = true},
        Case{.name = "wide_e4m3", .n = 49168, .k = 512, .f32 = true, .fp8 = true},
        Case{.name = "wide_pairs_e4m3", .n = 81920, .k = 256, .silu_mul = true, .fp8 = true}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(SkinnyGemmSupportsTest, RefusesWhatDoesNotFit) {
  alignas(16) static __nv_bfloat16 numbers[16];
  GemmProblem good;
  good.x = good.weight = numbers;
  good.rows = 64;
  good.n = 96;
  good.k = good.x_stride = 192;
  good.out_stride = 96;
  EXPECT_TRUE(SkinnyGemmSupports(good));
  const auto refused = [&](const auto& change) {
    GemmProblem problem = good;
    change(problem);
    return !SkinnyGemmSupports(problem);
  };
  EXPECT_TRUE(refused([](GemmProblem& p) { p.rows = 0; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.rows = 65; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.n = 100; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.n = 0; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.k = 160; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.x_stride = 196; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.x = numbers + 1; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.weight = numbers + 4; }));
  EXPECT_TRUE(refused([](GemmProblem& p) { p.weight_dtype = DType::kFp8; }));  // without scales
  EXPECT_TRUE(refused([](GemmProblem& p) {
    p.n = 120;
    p.silu_mul = true;
  }));
  EXPECT_TRUE(refused([](GemmProblem& p) {
    p.silu_mul = true;
    p.bias = numbers;
  }));
}

// A chain of GEMMs in a graph. Each of them reads the result of the one before. The early start of
// a kernel must not change the results.
TEST_F(SkinnyGemmTest, ChainsOverlapWithoutBeingSeen) {
  constexpr int32_t kWidth = 4096;
  constexpr int32_t kRows = 24;
  constexpr int32_t kLinks = 40;
  constexpr size_t kBytes = size_t{kRows} * kWidth * 2;
  DeviceMemory weight;
  DeviceMemory rows[2];
  ASSERT_TRUE(weight.Reserve(size_t{kWidth} * kWidth * 2).ok());
  for (DeviceMemory& memory : rows) ASSERT_TRUE(memory.Reserve(kBytes).ok());
  ASSERT_EQ(testing::FillRandom(weight.at<__nv_bfloat16>(), int64_t{kWidth} * kWidth, 1, 0.02f),
            cudaSuccess);
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  int sm_count = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
  const auto launch = [&](int link) {
    GemmProblem problem;
    problem.x = rows[link % 2].at<__nv_bfloat16>();
    problem.weight = weight.at<__nv_bfloat16>();
    problem.out = rows[1 - link % 2].at();
    problem.rows = kRows;
    problem.n = problem.k = kWidth;
    problem.x_stride = problem.out_stride = kWidth;
    problem.accumulate = true;
    ASSERT_EQ(LaunchSkinnyGemm(problem, sm_count, stream), cudaSuccess);
  };
  const auto reset = [&] {
    for (DeviceMemory& memory : rows) {
      ASSERT_EQ(testing::FillRandom(memory.at<__nv_bfloat16>(), kBytes / 2, 9, 1.0f), cudaSuccess);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  };
  const auto fetch = [&] {
    std::vector<std::byte> bytes(kBytes);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(bytes.data(), rows[0].at(), kBytes, cudaMemcpyDeviceToHost), cudaSuccess);
    return bytes;
  };

  reset();
  for (int link = 0; link < kLinks; ++link) {
    launch(link);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  const std::vector<std::byte> want = fetch();

  cudaGraph_t graph;
  cudaGraphExec_t executable;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  for (int link = 0; link < kLinks; ++link) launch(link);
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (int i = 0; i < 5; ++i) {
    reset();
    ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    EXPECT_EQ(fetch(), want);
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace baton::cuda
