#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/device/matrix.h"
#include "kernels/cuda/experts/experts.h"
#include "tests/gpu/test_device.h"

// Ranks that hold some of a layer's experts, on one GPU.
namespace baton::cuda {
namespace {

constexpr int32_t kExperts = 6;
constexpr int32_t kPerToken = 2;
constexpr int64_t kHidden = 128;
constexpr int64_t kMaxRows = 700;
// Three ranks. With two experts per token, a single row leaves one of them without work.
const std::vector<int32_t> kRankEnds = {1, 4, 6};

// The parameter: the experts are in FP8.
class HeldExperts : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      GTEST_SKIP() << "no GPU: experts of a rank were NOT tested";
    }
    device_ = CudaDevice::Open(0).value();
    if (GetParam() && !SupportsFp8(device_->properties())) {
      GTEST_SKIP() << "no FP8 on this GPU: experts of a rank were NOT tested in FP8";
    }
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    router_ = Load(kExperts, kHidden, false);
    // wgmma needs whole spans: 64 numbers in bf16, 128 in FP8.
    const int64_t width = GetParam() ? 256 : 192;
    for (int32_t e = 0; e < kExperts; ++e) {
      gate_up_.push_back(Load(2 * width, kHidden, GetParam()));
      down_.push_back(Load(kHidden, width, GetParam()));
    }
    ASSERT_TRUE(x_.Reserve(kMaxRows * kHidden * 2).ok());
    ASSERT_TRUE(out_.Reserve(kMaxRows * kHidden * 2).ok());
    const std::vector<std::byte> x = Numbers(kMaxRows * kHidden, 1.0f);
    ASSERT_TRUE(x_.Write(x).ok());
  }
  void TearDown() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  std::vector<std::byte> Numbers(int64_t count, float deviation) {
    std::normal_distribution<float> normal(0.0f, deviation);
    std::vector<std::byte> bytes(static_cast<size_t>(count) * 2);
    for (size_t i = 0; i < bytes.size(); i += 2) {
      const __nv_bfloat16 number = __float2bfloat16(normal(random_));
      std::memcpy(bytes.data() + i, &number, 2);
    }
    return bytes;
  }
  std::unique_ptr<Matrix> Load(int64_t rows, int64_t cols, bool fp8) {
    const std::vector<std::byte> bytes = Numbers(rows * cols, 0.15f);
    HostMatrix matrix{DType::kBF16, rows, cols, bytes.data()};
    matrix.may_quantize = fp8;
    return WeightLoader(*device_, true).Load({&matrix, 1}).value();
  }

  // The experts [first, end).
  ExpertArgs Args(int32_t first, int32_t end) const {
    const auto from = static_cast<size_t>(first);
    const auto count = static_cast<size_t>(end - first);
    return {.router = router_.get(),
            .gate_up = std::span(gate_up_).subspan(from, count),
            .down = std::span(down_).subspan(from, count),
            .experts_per_token = kPerToken,
            .rank_ends = kRankEnds};
  }
  std::vector<float> Compute(Experts& experts, int32_t first, int32_t end, int64_t rows) {
    PreparedExperts prepared = experts.Prepare(Args(first, end), first).value();
    EXPECT_TRUE(scratch_.Reserve(Experts::ScratchBytes(prepared, rows)).ok());
    prepared.scratch = scratch_.at();
    Tensor in;
    in.data = x_.at();
    in.dtype = DType::kBF16;
    in.rows = rows;
    in.cols = in.stride = kHidden;
    Tensor to = in;
    to.data = out_.at();
    EXPECT_EQ(experts.Launch(in, prepared, to, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    std::vector<__nv_bfloat16> numbers(static_cast<size_t>(rows * kHidden));
    EXPECT_EQ(cudaMemcpy(numbers.data(), out_.at(), numbers.size() * 2, cudaMemcpyDeviceToHost),
              cudaSuccess);
    std::vector<float> values;
    for (const __nv_bfloat16 number : numbers) values.push_back(__bfloat162float(number));
    return values;
  }

  std::mt19937_64 random_{5};
  std::unique_ptr<CudaDevice> device_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Matrix> router_;
  std::vector<std::unique_ptr<Matrix>> gate_up_;
  std::vector<std::unique_ptr<Matrix>> down_;
  DeviceMemory scratch_;
  DeviceMemory x_;
  DeviceMemory out_;
};

// The kernels of few rows, of many rows, and of Hopper.
TEST_P(HeldExperts, ResultsOfAllRanksAddUpToTheResult) {
  struct Mode {
    bool deterministic;
    int64_t wgmma_rows;
  };
  for (const Mode mode : {Mode{true, 0}, Mode{false, kMaxRows}, Mode{false, 0}}) {
    const ExpertsOptions options = {.deterministic = mode.deterministic,
                                    .wgmma_rows = mode.wgmma_rows};
    // One object for each rank, as in a group.
    const auto whole = Experts::Create(TestedDevice(), options).value();
    std::vector<std::unique_ptr<Experts>> ranks;
    for (size_t r = 0; r < kRankEnds.size(); ++r) {
      ranks.push_back(Experts::Create(TestedDevice(), options).value());
    }
    for (const int64_t rows : {1, 2, 4, 5, 32, 33, 200, 700, 1, 33}) {
      const std::vector<float> expected = Compute(*whole, 0, kExperts, rows);
      std::vector<float> sum(expected.size());
      std::vector<float> sizes(expected.size());
      int32_t first = 0;
      for (size_t r = 0; r < ranks.size(); ++r) {
        const std::vector<float> part = Compute(*ranks[r], first, kRankEnds[r], rows);
        for (size_t i = 0; i < part.size(); ++i) {
          sum[i] += part[i];
          sizes[i] += std::abs(part[i]);
        }
        first = kRankEnds[r];
      }
      // Each part and the whole were rounded to bf16.
      float worst = 0;
      for (size_t i = 0; i < sum.size(); ++i) {
        const float rounding = (sizes[i] + std::abs(expected[i])) / 256;
        worst = std::max(worst, std::abs(sum[i] - expected[i]) / (rounding + 1e-20f));
      }
      EXPECT_LT(worst, 1) << rows << " rows, deterministic " << mode.deterministic
                          << ", wgmma from " << mode.wgmma_rows;
    }
  }
}

TEST_P(HeldExperts, OthersThanTheRoutersAreRefused) {
  const auto experts = Experts::Create(TestedDevice(), {}).value();
  EXPECT_EQ(experts->Prepare(Args(1, 4), 4).status().code(), StatusCode::kInvalidArgument);
  ExpertArgs alone = Args(0, 4);
  alone.rank_ends = {};
  EXPECT_EQ(experts->Prepare(alone).status().code(), StatusCode::kInvalidArgument);
}

TEST_P(HeldExperts, OthersThanTheKernelsTakeAreRefused) {
  const auto experts = Experts::Create(TestedDevice(), {}).value();
  const auto error = [&](const ExpertArgs& args) {
    return std::string(experts->Prepare(args).status().message());
  };
  ExpertArgs args = Args(0, kExperts);
  const auto router = Load(kExperts + 10, kHidden, true);
  args.router = router.get();
  EXPECT_EQ(error(args), "the router is stored in FP8; it must be stored in bf16");
  down_[2] = Load(kHidden, down_[2]->cols(), !GetParam());
  EXPECT_EQ(error(Args(0, kExperts)),
            GetParam() ? "a matrix of the first expert is stored in fp8, that of expert 2 in bf16; "
                         "all experts of a layer must be stored in the same type, "
                         "with groups of the same form"
                       : "a matrix of the first expert is stored in bf16, that of expert 2 in fp8; "
                         "all experts of a layer must be stored in the same type, "
                         "with groups of the same form");
}

INSTANTIATE_TEST_SUITE_P(Types, HeldExperts, testing::Bool(), [](const auto& test) {
  return test.param ? "fp8" : "bf16";
});

}  // namespace
}  // namespace baton::cuda
