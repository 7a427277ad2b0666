#include <cuda_runtime_api.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/block_checksum.h"
#include "kernels/cuda/device_memory.h"

namespace baton::cuda {
namespace {

class BlocksTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      GTEST_SKIP() << "no GPU: block copies and checksums were NOT tested";
    }
  }

  // Random bytes, here and on the device.
  void Fill(size_t bytes) {
    std::mt19937_64 random(3);
    host_.resize(bytes);
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
      const uint64_t word = random();
      std::memcpy(host_.data() + i, &word, 8);
    }
    ASSERT_TRUE(memory_.Reserve(bytes).ok());
    ASSERT_EQ(cudaMemcpy(memory_.at(), host_.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  }

  std::vector<std::byte> host_;
  DeviceMemory memory_;
};

TEST_F(BlocksTest, ChecksumsAreXxh3) {
  const auto checksums = *BlockChecksums::Create();
  for (const uint64_t bytes :
       {256, 272, 1008, 1024, 1040, 1088, 2048, 2112, 33792, 65536, 100000, 2097152}) {
    Fill(static_cast<size_t>(bytes) * 6);
    const std::vector<uint64_t> offsets = {0, 3 * bytes, 16, 5 * bytes, bytes / 16 * 16};
    std::vector<uint64_t> got(offsets.size());
    const Status status = checksums->Compute(memory_.at(), offsets, bytes, got, nullptr);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < offsets.size(); ++i) {
      EXPECT_EQ(got[i], XXH3_64bits(host_.data() + offsets[i], bytes)) << bytes << " bytes, " << i;
    }
  }
}

TEST_F(BlocksTest, ManyChecksumsComeInParts) {
  // More than the scratch memory of one part holds.
  constexpr uint64_t kBytes = 65536;
  Fill(64 * kBytes);
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < 20000; ++i) offsets.push_back(i % 64 * kBytes);
  std::vector<uint64_t> got(offsets.size());
  ASSERT_TRUE(
      (*BlockChecksums::Create())->Compute(memory_.at(), offsets, kBytes, got, nullptr).ok());
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(got[i], XXH3_64bits(host_.data() + offsets[i], kBytes)) << i;
  }
  for (size_t i = 64; i < got.size(); ++i) ASSERT_EQ(got[i], got[i % 64]) << i;
}

TEST_F(BlocksTest, ChecksumsRefuseOddPieces) {
  Fill(4096);
  const auto checksums = *BlockChecksums::Create();
  uint64_t out[1];
  const uint64_t odd[] = {8};
  const uint64_t even[] = {16};
  EXPECT_EQ(checksums->Compute(memory_.at(), odd, 1024, out, nullptr).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(checksums->Compute(memory_.at(), even, 1000, out, nullptr).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(checksums->Compute(memory_.at(), even, 240, out, nullptr).code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::cuda
