#include "kernels/cuda/dma/row_copies.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device/device_memory.h"

namespace baton::cuda {
namespace {

constexpr size_t kArena = size_t{96} << 20;

// Runs to separate places: rows of equal size and distance, single runs, and both kinds of
// addresses, aligned ones and odd ones.
std::vector<CopyRun> RandomRuns(std::mt19937_64& random, bool aligned) {
  std::vector<CopyRun> runs;
  // Longer than one launch.
  if (aligned) runs.push_back({160, 0, kMaxLaunchBytes + (uint64_t{1} << 20) + 48});
  uint64_t at = aligned ? runs.front().bytes : 0;
  for (int group = 0; group < 10; ++group) {
    const uint64_t unit = aligned ? 16 : 1;
    const uint64_t bytes = unit * (1 + random() % ((uint64_t{70} << 10) / 16));
    const uint64_t pitch = bytes + unit * (random() % 100);
    const uint64_t source_pitch = bytes + unit * (random() % 1000);
    const uint64_t rows = random() % 2 == 0 ? 1 : 1 + random() % 60;
    const uint64_t source = unit * (random() % (kArena / 4 / unit));
    for (uint64_t row = 0; row < rows; ++row) {
      runs.push_back({source + row * source_pitch, at, bytes});
      at += pitch;
    }
    at += unit * (random() % 50);
  }
  return runs;
}

TEST(RowCopiesTest, LaunchesAreBoundedAndCoverAllRows) {
  constexpr uint64_t kRow = uint64_t{48} << 10;
  std::vector<StridedCopy> copies(100, StridedCopy{{0, 0, 16}, 32, 64, 5});
  copies.push_back({{160, 320, kRow}, 2 * kRow, 3 * kRow, 1000});
  std::byte from{};
  std::byte to{};
  const std::vector<RowCopyArgs> launches = PlanRowCopies(copies, &from, &to);
  EXPECT_EQ(launches.front().count, RowCopyArgs::kMaxCopies);
  uint64_t rows = 0;
  uint64_t last_rows = 0;
  for (const RowCopyArgs& launch : launches) {
    uint64_t bytes = 0;
    uint32_t blocks = 0;
    for (uint32_t i = 0; i < launch.count; ++i) {
      const RowCopyArgs::Copy& copy = launch.copies[i];
      EXPECT_EQ(copy.first_block, blocks);
      EXPECT_GT(copy.rows, 0u);
      blocks += copy.blocks();
      bytes += copy.bytes();
      if (copy.row_bytes == kRow) {
        EXPECT_EQ(copy.source - &from, static_cast<ptrdiff_t>(160 + last_rows * 2 * kRow));
        EXPECT_EQ(copy.destination - &to, static_cast<ptrdiff_t>(320 + last_rows * 3 * kRow));
        last_rows += copy.rows;
      } else {
        rows += copy.rows;
      }
    }
    EXPECT_LE(bytes, kMaxLaunchBytes);
  }
  EXPECT_EQ(rows, 500u);
  EXPECT_EQ(last_rows, 1000u);
}

TEST(RowCopiesTest, OddSizesDistancesAndAddressesAreNotForTheKernel) {
  alignas(16) std::byte memory[32] = {};
  const StridedCopy good = {{16, 32, 48}, 64, 80, 4};
  EXPECT_TRUE(SuitsRowKernel(good, memory, memory));
  EXPECT_FALSE(SuitsRowKernel(good, memory + 8, memory));
  EXPECT_FALSE(SuitsRowKernel(good, memory, memory + 8));
  EXPECT_FALSE(SuitsRowKernel({{16, 32, 40}, 64, 80, 4}, memory, memory));
  EXPECT_FALSE(SuitsRowKernel({{16, 32, 48}, 72, 80, 4}, memory, memory));
  EXPECT_FALSE(SuitsRowKernel({{16, 32, 48}, 64, 88, 4}, memory, memory));
}

class CopyRunsTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      GTEST_SKIP() << "no GPU: copies of short runs were NOT tested";
    }
    ASSERT_EQ(LoadRowCopyKernel(), cudaSuccess);
  }
};

TEST_F(CopyRunsTest, AllCopiersCopyTheSameBytes) {
  std::mt19937_64 random(7);
  std::vector<std::byte> source(kArena);
  for (size_t i = 0; i + 8 <= kArena; i += 8) {
    const uint64_t word = random();
    std::memcpy(source.data() + i, &word, 8);
  }
  DeviceMemory from;
  DeviceMemory to;
  ASSERT_TRUE(from.Reserve(kArena).ok());
  ASSERT_TRUE(to.Reserve(kArena).ok());
  ASSERT_TRUE(from.Write(source).ok());
  std::vector<std::byte> got(kArena);
  // A batch of copies is not allowed on the default stream.
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  for (int round = 0; round < 20; ++round) {
    const std::vector<CopyRun> runs = RandomRuns(random, round % 4 != 3);
    ASSERT_LE(runs.back().destination + runs.back().bytes, kArena);
    std::vector<std::byte> expected(kArena);
    for (const CopyRun& run : runs) {
      std::copy_n(source.begin() + static_cast<ptrdiff_t>(run.source),
                  run.bytes,
                  expected.begin() + static_cast<ptrdiff_t>(run.destination));
    }
    for (const Copiers copiers :
         {Copiers::kEngines, Copiers::kEnginesAndSms, Copiers::kSms, Copiers::kSmsOneBlockPerSm}) {
      ASSERT_EQ(cudaMemset(to.at(), 0, kArena), cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      ASSERT_EQ(CopyRuns(from.at(), to.at(), runs, copiers, stream), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      ASSERT_EQ(cudaMemcpy(got.data(), to.at(), kArena, cudaMemcpyDeviceToHost), cudaSuccess);
      ASSERT_EQ(std::memcmp(got.data(), expected.data(), kArena), 0)
          << round << ", copiers " << static_cast<int>(copiers);
    }
  }
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace baton::cuda
