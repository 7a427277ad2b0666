#include <cuda_runtime_api.h>

#include <cmath>
#include <cstring>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/few_rows.h"
#include "tests/gpu/gemm_reference.h"

namespace baton::cuda {
namespace {

constexpr int32_t kMostRows = 64;

struct Case {
  const char* name = "";
  int32_t n = 0;
  int32_t k = 0;
  bool silu_mul = false;
  bool bias = false;
  bool accumulate = false;
  bool f32 = false;
  int32_t x_gap = 0;    // numbers between the rows of x
  int32_t out_gap = 0;  // of out

  int32_t outputs() const { return silu_mul ? n / 2 : n; }
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

// One product on the device, with random operands.
class World final {
 public:
  explicit World(const Case& c) : case_(c) {
    const auto bf16 = [](int64_t count) { return static_cast<size_t>(count) * 2; };
    Reserve(weight_, bf16(int64_t{c.n} * c.k));
    Reserve(x_, bf16(int64_t{kMostRows} * x_stride()));
    Reserve(bias_, bf16(c.n));
    Reserve(out_, out_bytes());
    Reserve(before_, out_bytes());
    Reserve(want_, static_cast<size_t>(kMostRows) * static_cast<size_t>(c.outputs()) * 4);
    Check(testing::FillRandom(weight_.at<__nv_bfloat16>(), int64_t{c.n} * c.k, 1, 0.05f));
    Check(testing::FillRandom(x_.at<__nv_bfloat16>(), int64_t{kMostRows} * x_stride(), 2, 1.0f));
    Check(testing::FillRandom(bias_.at<__nv_bfloat16>(), c.n, 3, 1.0f));
    Check(testing::FillRandom(
        before_.at<__nv_bfloat16>(), static_cast<int64_t>(out_bytes() / 2), 4, 1.0f));
    Check(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, 0));
  }

  Product Make(int32_t rows) const {
    Product product;
    product.x = x_.at<__nv_bfloat16>();
    product.weight = weight_.at<__nv_bfloat16>();
    product.bias = case_.bias ? bias_.at<__nv_bfloat16>() : nullptr;
    product.out = out_.at();
    product.out_dtype = case_.f32 ? DType::kF32 : DType::kBF16;
    product.rows = rows;
    product.n = case_.n;
    product.k = case_.k;
    product.x_stride = x_stride();
    product.out_stride = out_stride();
    product.accumulate = case_.accumulate;
    product.silu_mul = case_.silu_mul;
    return product;
  }

  // All of `out` after the product, with what lies between its rows.
  std::vector<std::byte> Run(int32_t rows) { return Run(rows, FindFewRowsLimits(processors_)); }
  std::vector<std::byte> Run(int32_t rows, const FewRowsLimits& limits) {
    Check(cudaMemcpy(out_.at(), before_.at(), out_bytes(), cudaMemcpyDeviceToDevice));
    Check(LaunchFewRows(Make(rows), PlanFewRows(Make(rows), limits), nullptr));
    Check(cudaDeviceSynchronize());
    return Fetch(out_);
  }

  // Rows of outputs.
  std::vector<float> Want(int32_t rows) {
    Check(testing::ReferenceProduct(Make(rows), before_.at(), want_.at<float>()));
    std::vector<float> want(static_cast<size_t>(rows) * static_cast<size_t>(case_.outputs()));
    Check(cudaMemcpy(want.data(), want_.at(), want.size() * 4, cudaMemcpyDeviceToHost));
    return want;
  }

  std::vector<std::byte> Before() const { return Fetch(before_); }
  int processors() const { return processors_; }
  size_t number_bytes() const { return case_.f32 ? 4 : 2; }
  int64_t out_stride() const { return case_.outputs() + case_.out_gap; }

  float Number(std::span<const std::byte> out, int32_t row, int32_t output) const {
    const auto at = static_cast<size_t>(row * out_stride() + output) * number_bytes();
    uint32_t bits = 0;
    std::memcpy(
        case_.f32 ? reinterpret_cast<std::byte*>(&bits) : reinterpret_cast<std::byte*>(&bits) + 2,
        out.data() + at,
        number_bytes());
    float number;
    std::memcpy(&number, &bits, 4);
    return number;
  }

 private:
  static void Check(cudaError_t error) {
    ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
  }
  static void Reserve(DeviceMemory& memory, size_t bytes) {
    ASSERT_TRUE(memory.Reserve(bytes).ok());
  }
  std::vector<std::byte> Fetch(const DeviceMemory& memory) const {
    std::vector<std::byte> bytes(out_bytes());
    Check(cudaMemcpy(bytes.data(), memory.at(), bytes.size(), cudaMemcpyDeviceToHost));
    return bytes;
  }
  int64_t x_stride() const { return case_.k + case_.x_gap; }
  size_t out_bytes() const {
    return static_cast<size_t>(kMostRows * out_stride()) * number_bytes();
  }

  const Case case_;
  int processors_ = 0;
  DeviceMemory weight_;
  DeviceMemory x_;
  DeviceMemory bias_;
  DeviceMemory out_;
  DeviceMemory before_;
  DeviceMemory want_;
};

class FewRowsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int major = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
        major != 9) {
      GTEST_SKIP() << "no GPU of compute capability 9: products of few rows were NOT tested";
    }
  }
};

class FewRowsCaseTest : public FewRowsTest, public ::testing::WithParamInterface<Case> {};

// Expects `got` to be the product, and nothing to be written beside it.
void ExpectProduct(const World& world,
                   const Case& c,
                   int32_t rows,
                   const std::vector<float>& want,
                   const std::vector<std::byte>& before,
                   const std::vector<std::byte>& got) {
  double error = 0;
  double norm = 0;
  size_t i = 0;
  for (int32_t row = 0; row < rows; ++row) {
    for (int32_t output = 0; output < c.outputs(); ++output, ++i) {
      error += std::pow(world.Number(got, row, output) - want[i], 2);
      norm += std::pow(want[i], 2);
    }
  }
  // bf16 rounds results to 2^-9; tensor cores cut off sums.
  EXPECT_LT(std::sqrt(error / norm), c.f32 ? 1e-4 : 4e-3) << rows << " rows";

  for (int32_t row = 0; row < kMostRows; ++row) {
    const int32_t written = row < rows ? c.outputs() : 0;
    const auto from = static_cast<size_t>(row * world.out_stride() + written);
    const auto to = static_cast<size_t>((row + 1) * world.out_stride());
    ASSERT_EQ(std::memcmp(got.data() + from * world.number_bytes(),
                          before.data() + from * world.number_bytes(),
                          (to - from) * world.number_bytes()),
              0)
        << "row " << row << " of " << rows << " was written beyond its end";
  }
}

TEST_P(FewRowsCaseTest, GivesTheProductAndNothingElse) {
  World world(GetParam());
  const std::vector<std::byte> before = world.Before();
  for (const int32_t rows : {1, 2, 3, 5, 8, 9, 16, 17, 33, 63, 64}) {
    ASSERT_TRUE(FewRowsTakes(world.Make(rows)));
    ExpectProduct(world, GetParam(), rows, world.Want(rows), before, world.Run(rows));
  }
}

// Plans that the rules would not choose for this shape, but for others.
TEST_P(FewRowsCaseTest, AnyPlanGivesTheProduct) {
  World world(GetParam());
  const std::vector<std::byte> before = world.Before();
  for (const int32_t rows : {3, 64}) {
    const std::vector<float> want = world.Want(rows);
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
          ExpectProduct(world, GetParam(), rows, want, before, world.Run(rows, limits));
        }
      }
    }
  }
}

TEST_P(FewRowsCaseTest, RepeatsItself) {
  World world(GetParam());
  for (const int32_t rows : {2, 9, 40}) {
    const std::vector<std::byte> first = world.Run(rows);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(world.Run(rows), first) << rows << " rows";
  }
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
        Case{.name = "head_odd", .n = 49160, .k = 576, .f32 = true}),
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
