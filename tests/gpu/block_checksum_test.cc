#include "kernels/cuda/dma/block_checksum.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device/device_memory.h"
#include "kernels/granule_checksum.h"

namespace baton::cuda {
namespace {

class BlocksTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      GTEST_SKIP() << "no GPU: checksums of blocks were NOT tested";
    }
  }

  // Writes the same random bytes to host_ and to the device.
  void Fill(size_t bytes) {
    std::mt19937_64 random(3);
    host_.resize(bytes);
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
      const uint64_t word = random();
      std::memcpy(host_.data() + i, &word, 8);
    }
    ASSERT_TRUE(memory_.Reserve(bytes).ok());
    ASSERT_TRUE(memory_.Write(host_).ok());
  }

  std::vector<std::byte> host_;
  DeviceMemory memory_;
};

TEST_F(BlocksTest, ChecksumsAreAsOnTheHost) {
  constexpr uint64_t kPart = kChecksumPartBytes;
  BlockChecksums checksums;
  for (const uint64_t bytes : {uint64_t{256},
                               uint64_t{272},
                               uint64_t{1008},
                               uint64_t{1024},
                               uint64_t{1040},
                               uint64_t{1088},
                               uint64_t{2048},
                               uint64_t{2112},
                               kPart - 1024,
                               kPart - 1008,
                               kPart - 16,
                               kPart,
                               kPart + 256,
                               kPart + 1040,
                               2 * kPart,
                               3 * kPart - 16,
                               uint64_t{100000},
                               64 * kPart,
                               64 * kPart + 272}) {
    Fill(static_cast<size_t>(bytes) * 6);
    const std::vector<uint64_t> offsets = {0, 3 * bytes, 16, 5 * bytes, bytes};
    std::vector<uint64_t> got(offsets.size());
    const Status status = checksums.Compute(memory_.at(), offsets, bytes, got, nullptr);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < offsets.size(); ++i) {
      EXPECT_EQ(got[i], GranuleChecksum(std::span(host_).subspan(offsets[i], bytes)))
          << bytes << " bytes, " << i;
    }
  }
}

// More granules than one launch takes.
TEST_F(BlocksTest, ManyChecksums) {
  for (const uint64_t bytes : {uint64_t{4096}, 3 * kChecksumPartBytes}) {
    Fill(64 * bytes);
    std::vector<uint64_t> offsets;
    for (uint64_t i = 0; i < 5000; ++i) offsets.push_back(i % 64 * bytes);
    std::vector<uint64_t> got(offsets.size());
    ASSERT_TRUE(BlockChecksums().Compute(memory_.at(), offsets, bytes, got, nullptr).ok());
    for (size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(got[i], GranuleChecksum(std::span(host_).subspan(offsets[i], bytes))) << i;
    }
    for (size_t i = 64; i < got.size(); ++i) ASSERT_EQ(got[i], got[i % 64]) << i;
  }
}

TEST_F(BlocksTest, EveryPartAndTheirOrderCount) {
  constexpr uint64_t kPart = kChecksumPartBytes;
  constexpr uint64_t kBytes = 4 * kPart + 1024;
  Fill(kBytes);
  BlockChecksums checksums;
  const auto sum = [&] {
    const uint64_t offset = 0;
    uint64_t out = 0;
    EXPECT_TRUE(memory_.Write(host_).ok());
    EXPECT_TRUE(checksums.Compute(memory_.at(), {&offset, 1}, kBytes, {&out, 1}, nullptr).ok());
    return out;
  };
  const uint64_t whole = sum();
  for (uint64_t at = 0; at < kBytes; at += kPart) {
    host_[at + 999] ^= std::byte{4};
    EXPECT_NE(sum(), whole) << "a bit of part " << at / kPart;
    host_[at + 999] ^= std::byte{4};
  }
  ASSERT_EQ(sum(), whole);
  std::swap_ranges(host_.begin() + kPart, host_.begin() + 2 * kPart, host_.begin() + 2 * kPart);
  EXPECT_NE(sum(), whole);
}

TEST_F(BlocksTest, ChecksumsRefuseOddGranules) {
  Fill(2 * kChecksumPartBytes);
  BlockChecksums checksums;
  const auto code = [&](uint64_t offset, uint64_t bytes) {
    uint64_t out = 0;
    return checksums.Compute(memory_.at(), {&offset, 1}, bytes, {&out, 1}, nullptr).code();
  };
  EXPECT_EQ(code(16, 1024), StatusCode::kOk);
  EXPECT_EQ(code(8, 1024), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(16, 1000), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(16, 0), StatusCode::kInvalidArgument);
  // The last part must have at least 241 bytes.
  EXPECT_EQ(code(16, 240), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(16, 256), StatusCode::kOk);
  EXPECT_EQ(code(16, kChecksumPartBytes + 240), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(16, kChecksumPartBytes + 256), StatusCode::kOk);
}

}  // namespace
}  // namespace baton::cuda
