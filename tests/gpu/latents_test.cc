#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/input/step_buffer.h"
#include "kernels/cuda/latent/latent_attention.h"
#include "kernels/cuda/table/kernel_table.h"
#include "tests/gpu/test_device.h"

// Compares the kernels of latents with tensor cores, that for Hopper and the other one in tiles of
// all sizes that fit this GPU, with the portable kernel, whose results the parity suite checks.
namespace baton::cuda {
namespace {

constexpr int32_t kBlockTokens = 16;
constexpr int32_t kRank = 512;
constexpr int32_t kWidth = 576;
// Without the kernel for Hopper, the shared memory of a block decides which kernel and which tile
// the table chooses.
constexpr int32_t kPortableBytes = 64 << 10;
constexpr int32_t kOneStageBytes = 99 << 10;
constexpr int32_t kA100Bytes = 163 << 10;

void Check(cudaError_t error) {
  ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
}
void Check(const Status& status) {
  ASSERT_TRUE(status.ok()) << status;
}

// (context, rows) of each sequence.
using Lengths = std::vector<std::pair<int32_t, int32_t>>;

class LatentsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = CudaDevice::Open(0);
    if (!device.ok() && device.status().code() == StatusCode::kNotFound) {
      GTEST_SKIP() << "attention to latents was NOT tested: " << device.status();
    }
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    Check(device_->MakeCurrent());
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    fixed_ = *StepBuffer::Create(size_t{1} << 20);
    lists_ = *StepBuffer::Create(size_t{1} << 20);
  }
  void TearDown() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  std::vector<__nv_bfloat16> Random(size_t count, float scale) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<__nv_bfloat16> values(count);
    for (__nv_bfloat16& value : values) value = __float2bfloat16(normal(random_));
    return values;
  }

  static void Upload(const std::vector<__nv_bfloat16>& values, DeviceMemory& to) {
    const size_t bytes = values.size() * sizeof(__nv_bfloat16);
    Check(to.Reserve(bytes));
    Check(cudaMemcpy(to.at(), values.data(), bytes, cudaMemcpyHostToDevice));
  }

  // A step over a cache of random latents, in which unused tokens are NaN.
  void Begin(const Lengths& lengths, int32_t heads, int32_t padded_rows = 0) {
    heads_ = heads;
    tokens_.clear();
    positions_.clear();
    sequences_.clear();
    tables_.clear();
    logit_rows_.clear();
    for (const auto& [context, rows] : lengths) {
      SequenceRows& sequence = sequences_.emplace_back();
      sequence.first_row = static_cast<int32_t>(tokens_.size());
      sequence.row_count = rows;
      sequence.context = context;
      sequence.first_block = static_cast<int32_t>(tables_.size());
      const int32_t blocks = (context + rows + kBlockTokens - 1) / kBlockTokens;
      tables_.resize(tables_.size() + static_cast<size_t>(blocks));
      for (int32_t i = 0; i < rows; ++i) {
        tokens_.push_back(0);
        positions_.push_back(context + i);
        logit_rows_.push_back(static_cast<int32_t>(logit_rows_.size()));
      }
    }
    std::iota(tables_.begin(), tables_.end(), 0);
    std::ranges::shuffle(tables_, random_);
    kv_ = {};
    kv_.dtype = DType::kBF16;
    kv_.blocks = static_cast<int32_t>(tables_.size());
    kv_.layers = 2;
    kv_.kv_heads = 1;
    kv_.head_dim = kWidth;
    kv_.block_tokens = kBlockTokens;
    kv_.head_stride = kv_.layer_stride = int64_t{2} * kBlockTokens * kWidth;
    kv_.block_stride = 2 * kv_.layer_stride;
    auto latents = Random(static_cast<size_t>(kv_.blocks * kv_.block_stride / 2), 1.0f);
    for (size_t i = 0; i < lengths.size(); ++i) {
      const auto [context, rows] = lengths[i];
      const int32_t end = sequences_[i].first_block + (context + rows - 1) / kBlockTokens;
      for (int32_t token = (context + rows - 1) % kBlockTokens + 1; token < kBlockTokens; ++token) {
        for (int32_t layer = 0; layer < 2; ++layer) {
          const int64_t at = tables_[static_cast<size_t>(end)] * kv_.block_stride +
                             layer * kv_.layer_stride + int64_t{2} * token * kWidth;
          std::fill_n(latents.begin() + at / 2, kWidth, __float2bfloat16(NAN));
        }
      }
    }
    Upload(latents, cache_);
    kv_.base = cache_.at();
    rows_ = std::max(static_cast<int32_t>(tokens_.size()), padded_rows);
    padded_ = padded_rows;
    Upload(Random(static_cast<size_t>(int64_t{rows_} * heads * kWidth), 1.0f), q_);
    input_ = {tokens_, positions_, sequences_, tables_, logit_rows_};
  }

  // This GPU if it had no kernels for Hopper, and so much shared memory.
  DeviceProperties Without(int32_t shared_bytes) const {
    DeviceProperties device = device_->properties();
    device.portable = true;
    device.block_shared_bytes = shared_bytes;
    return device;
  }
  // GPUs for which the table chooses tensor cores, and whose kernels run on this one.
  std::vector<DeviceProperties> WithTensorCores() const {
    std::vector<DeviceProperties> devices;
    const int32_t present = device_->properties().block_shared_bytes;
    for (const int32_t bytes : {kOneStageBytes, kA100Bytes, present}) {
      if (bytes <= present) devices.push_back(Without(bytes));
    }
    if (MayRun(KernelFamily::kHopper, device_->properties())) {
      devices.push_back(device_->properties());
    }
    return devices;
  }

  // The results of all rows of the step on `device`. `used`, if any, gets the plan.
  std::vector<float> Attend(const DeviceProperties& device,
                            bool deterministic,
                            LatentPlan* used = nullptr) {
    auto attention = *LatentAttention::Create(device, deterministic);
    fixed_->Clear();
    lists_->Clear();
    StepLayout step;
    Check(step.Build(input_, kv_, padded_, *fixed_, *lists_));
    const LatentWork work = {.shape = {.heads = heads_, .rank = kRank, .rope_dim = kWidth - kRank},
                             .scale = 0.06f};
    const auto plan = attention->Plan(work, step, kv_, *fixed_);
    EXPECT_TRUE(plan.ok()) << plan.status();
    EXPECT_TRUE(*fixed_->Fits() && *lists_->Fits());
    if (used != nullptr) *used = *plan;
    Check(fixed_->Upload(stream_));
    Check(lists_->Upload(stream_));
    const int64_t columns = int64_t{heads_} * kRank;
    DeviceMemory out;
    Check(out.Reserve(static_cast<size_t>(rows_ * columns * 2)));
    const Tensor q = {
        q_.at(), DType::kBF16, rows_, int64_t{heads_} * kWidth, int64_t{heads_} * kWidth};
    Check(attention->Launch(
        *plan, kv_, 1, q, {out.at(), DType::kBF16, rows_, columns, columns}, stream_));
    Check(cudaStreamSynchronize(stream_));
    std::vector<__nv_bfloat16> bits(tokens_.size() * static_cast<size_t>(columns));
    Check(cudaMemcpy(bits.data(), out.at(), bits.size() * 2, cudaMemcpyDeviceToHost));
    std::vector<float> values(bits.size());
    std::ranges::transform(
        bits, values.begin(), [](__nv_bfloat16 x) { return __bfloat162float(x); });
    return values;
  }

  static void ExpectNear(const std::vector<float>& got, const std::vector<float>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 0.01f + 0.02f * std::fabs(want[i])) << "number " << i;
    }
  }

  // Compares all kernels with tensor cores with the portable one.
  void ExpectAgreement() {
    LatentPlan portable;
    const auto want = Attend(Without(kPortableBytes), false, &portable);
    ASSERT_EQ(portable.kernel, KernelId::kPortableLatents);
    for (const DeviceProperties& device : WithTensorCores()) {
      for (const bool deterministic : {false, true}) {
        LatentPlan plan;
        const auto got = Attend(device, deterministic, &plan);
        SCOPED_TRACE(fmt::format("{}, {} heads in tiles of {} with {} stages, {} splits",
                                 RowOf(plan.kernel).name,
                                 heads_,
                                 plan.tile.heads,
                                 plan.tile.stages,
                                 plan.tiles.work_tiles));
        ASSERT_EQ(plan.kernel,
                  device.portable ? KernelId::kTiledLatents : KernelId::kHopperLatents);
        ExpectNear(got, want);
        if (HasFatalFailure()) return;
      }
    }
  }

  std::unique_ptr<CudaDevice> device_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<StepBuffer> fixed_;
  std::unique_ptr<StepBuffer> lists_;
  std::mt19937 random_{7};
  DeviceMemory cache_;
  DeviceMemory q_;
  KvView kv_;
  int32_t heads_ = 0;
  int32_t rows_ = 0;
  int32_t padded_ = 0;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
  std::vector<SequenceRows> sequences_;
  std::vector<int32_t> tables_;
  std::vector<int32_t> logit_rows_;
  StepInput input_;
};

TEST_F(LatentsTest, TilesAgreeWithThePortableKernel) {
  const Lengths steps[] = {{{0, 1}},
                           {{62, 1}, {63, 1}, {64, 1}, {700, 1}, {3000, 1}},
                           {{0, 90}, {200, 7}, {1100, 40}, {5, 1}}};
  for (const Lengths& lengths : steps) {
    for (const int32_t heads : {16, 24, 128}) {
      Begin(lengths, heads);
      ExpectAgreement();
      if (HasFatalFailure()) return;
    }
  }
}

// Rows that see a position less than a whole number of groups, of tiles or of splits, as many, and
// one more.
TEST_F(LatentsTest, AllLengthsAtBordersAgree) {
  Lengths lengths;
  for (const int32_t border : {1, 8, 16, 48, 64, 96, 144, 192, 256, 1008, 1024, 2016, 2048}) {
    for (int32_t length = border - 1; length <= border + 1; ++length) {
      if (length > 0) lengths.emplace_back(length - 1, 1);
    }
  }
  for (const int32_t heads : {8, 40, 64, 100, 128, 192, 256}) {
    Begin(lengths, heads);
    ExpectAgreement();
    if (HasFatalFailure()) return;
  }
}

// One long context, which is split for all SMs.
TEST_F(LatentsTest, AContextOfManySplitsAgrees) {
  for (const int32_t context : {4095, 9000}) {
    Begin({{context, 1}}, 128);
    ExpectAgreement();
    if (HasFatalFailure()) return;
  }
}

TEST_F(LatentsTest, ARecordedStepHasTheSameResults) {
  const Lengths lengths = {{1023, 1}, {80, 1}, {2500, 1}};
  Begin(lengths, 32, 4);
  ExpectAgreement();
  Begin(lengths, 128, 4);
  ExpectAgreement();
}

// In deterministic mode the other rows of a step change no bit of a row.
TEST_F(LatentsTest, DeterministicRowsDependOnNoOtherRows) {
  Begin({{2100, 1}, {90, 1}, {1500, 30}}, 128);
  const auto all = Attend(device_->properties(), true);
  const auto rows = sequences_;
  const auto columns = static_cast<size_t>(int64_t{heads_} * kRank);
  // The first sequence alone: the same cache and the same queries.
  sequences_.resize(1);
  tokens_.resize(1);
  positions_.resize(1);
  logit_rows_.resize(1);
  rows_ = 1;
  input_ = {tokens_, positions_, sequences_, tables_, logit_rows_};
  const auto alone = Attend(device_->properties(), true);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin()));
  EXPECT_EQ(alone.size(), columns);
}

}  // namespace
}  // namespace baton::cuda
