#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/few_rows.h"
#include "tests/gpu/gemm_reference.h"
#include "tests/gpu/product_world.h"

namespace baton::cuda {
namespace {

constexpr int32_t kMostRows = 64;

using Case = testing::ProductCase;
using World = testing::ProductWorld;

World::Launch With(const FewRowsLimits& limits) {
  return [limits](const Product& product) {
    return LaunchFewRows(product, PlanFewRows(product, limits), nullptr);
  };
}

using FewRowsTest = testing::HopperTest;

class FewRowsCaseTest : public FewRowsTest, public ::testing::WithParamInterface<Case> {};

TEST_P(FewRowsCaseTest, GivesTheProductAndNothingElse) {
  World world(GetParam(), kMostRows);
  for (const int32_t rows : {1, 2, 3, 5, 8, 9, 16, 17, 33, 63, 64}) {
    ASSERT_TRUE(FewRowsTakes(world.Make(rows)));
    world.Expect(rows, With(FindFewRowsLimits(world.processors())));
  }
}

// Plans that the rules would not choose for this shape, but for others.
TEST_P(FewRowsCaseTest, AnyPlanGivesTheProduct) {
  World world(GetParam(), kMostRows);
  for (const int32_t rows : {3, 64}) {
    for (const int32_t cluster : {1, 2, 4}) {
      for (const int32_t stage_bytes : {4 << 10, 32 << 10}) {
        for (const int32_t matrices : {1, 2, 8}) {
          FewRowsLimits limits = FindFewRowsLimits(world.processors());
          limits.cluster = cluster;
          limits.stage_bytes = stage_bytes;
          limits.matrices = matrices;
          limits.tile_rows = matrices == 2 ? 48 : kFewRowsTile;
          limits.shared_bytes = matrices == 2 ? 112 << 10 : 226 << 10;
          SCOPED_TRACE(::testing::Message()
                       << "clusters of " << cluster << ", " << stage_bytes << ", " << matrices);
          world.Expect(rows, With(limits));
        }
      }
    }
  }
}

TEST_P(FewRowsCaseTest, RepeatsItself) {
  World world(GetParam(), kMostRows);
  const World::Launch launch = With(FindFewRowsLimits(world.processors()));
  for (const int32_t rows : {2, 9, 40}) world.ExpectRepeats(rows, launch);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    FewRowsCaseTest,
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
        Case{.name = "tiny_e4m3", .n = 16, .k = 128, .quantized = true},
        Case{.name = "small_e4m3", .n = 96, .k = 640, .out_gap = 8, .quantized = true},
        Case{.name = "odd_k_e4m3", .n = 576, .k = 1152, .f32 = true, .quantized = true},
        Case{.name = "pairs_e4m3",
             .n = 1056,
             .k = 640,
             .silu_mul = true,
             .out_gap = 40,
             .quantized = true},
        Case{.name = "qkv_bias_e4m3",
             .n = 6144,
             .k = 4096,
             .bias = true,
             .f32 = true,
             .quantized = true},
        Case{.name = "o_e4m3",
             .n = 4096,
             .k = 4096,
             .accumulate = true,
             .f32 = true,
             .quantized = true},
        Case{.name = "gate_up_e4m3", .n = 28672, .k = 4096, .silu_mul = true, .quantized = true},
        Case{.name = "down_e4m3",
             .n = 4096,
             .k = 14336,
             .accumulate = true,
             .f32 = true,
             .quantized = true},
        Case{.name = "wide_e4m3", .n = 49168, .k = 512, .f32 = true, .quantized = true},
        Case{.name = "wide_pairs_e4m3", .n = 81920, .k = 256, .silu_mul = true, .quantized = true}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(FewRowsTakesTest, RefusesWhatDoesNotFit) {
  alignas(16) static __nv_bfloat16 numbers[16];
  Product good;
  good.x = good.weight = numbers;
  good.rows = 64;
  good.n = 96;
  good.k = good.x_stride = 192;
  good.out_stride = 96;
  EXPECT_TRUE(FewRowsTakes(good));
  const auto refused = [&](const auto& change) {
    Product product = good;
    change(product);
    return !FewRowsTakes(product);
  };
  EXPECT_TRUE(refused([](Product& p) { p.rows = 0; }));
  EXPECT_TRUE(refused([](Product& p) { p.rows = 65; }));
  EXPECT_TRUE(refused([](Product& p) { p.n = 100; }));
  EXPECT_TRUE(refused([](Product& p) { p.n = 0; }));
  EXPECT_TRUE(refused([](Product& p) { p.k = 160; }));
  EXPECT_TRUE(refused([](Product& p) { p.x_stride = 196; }));
  EXPECT_TRUE(refused([](Product& p) { p.x = numbers + 1; }));
  EXPECT_TRUE(refused([](Product& p) { p.weight = numbers + 4; }));
  EXPECT_TRUE(refused([](Product& p) { p.weight_dtype = DType::kF8; }));  // and no scales
  EXPECT_TRUE(refused([](Product& p) {
    p.n = 120;
    p.silu_mul = true;
  }));
  EXPECT_TRUE(refused([](Product& p) {
    p.silu_mul = true;
    p.bias = numbers;
  }));
}

// A chain of products, each the input of the next, in a graph: early starts must not be seen.
TEST_F(FewRowsTest, ChainsOverlapWithoutBeingSeen) {
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
  int processors = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
  const auto launch = [&](int link) {
    Product product;
    product.x = rows[link % 2].at<__nv_bfloat16>();
    product.weight = weight.at<__nv_bfloat16>();
    product.out = rows[1 - link % 2].at();
    product.rows = kRows;
    product.n = product.k = kWidth;
    product.x_stride = product.out_stride = kWidth;
    product.accumulate = true;
    ASSERT_EQ(LaunchFewRows(product, processors, stream), cudaSuccess);
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
