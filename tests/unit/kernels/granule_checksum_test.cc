#include "kernels/granule_checksum.h"

#include <xxhash.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr size_t kPart = 32768;

std::vector<std::byte> RandomBytes(size_t size) {
  std::mt19937 random(5);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// A second implementation of the definition, which uses only xxhash.
uint64_t Reference(const std::vector<std::byte>& bytes) {
  if (bytes.size() <= kPart) return XXH3_64bits(bytes.data(), bytes.size());
  std::string sums;
  for (size_t at = 0; at < bytes.size(); at += kPart) {
    const uint64_t sum = XXH3_64bits(bytes.data() + at, std::min(kPart, bytes.size() - at));
    for (int shift = 0; shift < 64; shift += 8) sums += static_cast<char>(sum >> shift & 0xff);
  }
  return XXH3_64bits(sums.data(), sums.size());
}

TEST(GranuleChecksumTest, IsATreeOfXxh3) {
  for (const size_t size : {size_t{1},
                            size_t{240},
                            size_t{241},
                            size_t{1000},
                            kPart - 1,
                            kPart,
                            kPart + 1,
                            kPart + 16,
                            2 * kPart,
                            2 * kPart + 1,
                            64 * kPart,
                            64 * kPart + 48}) {
    const std::vector<std::byte> bytes = RandomBytes(size);
    EXPECT_EQ(GranuleChecksum(bytes), Reference(bytes)) << size << " bytes";
  }
}

TEST(GranuleChecksumTest, EveryPartAndTheirOrderCount) {
  std::vector<std::byte> bytes = RandomBytes(4 * kPart + 1000);
  const uint64_t whole = GranuleChecksum(bytes);
  for (size_t at = 0; at < bytes.size(); at += kPart) {
    bytes[at + 999] ^= std::byte{4};
    EXPECT_NE(GranuleChecksum(bytes), whole) << "a bit of part " << at / kPart;
    bytes[at + 999] ^= std::byte{4};
  }
  ASSERT_EQ(GranuleChecksum(bytes), whole);
  std::swap_ranges(bytes.begin() + kPart, bytes.begin() + 2 * kPart, bytes.begin() + 2 * kPart);
  EXPECT_NE(GranuleChecksum(bytes), whole);
}

TEST(GranuleChecksumTest, PartsCoverTheGranule) {
  for (const uint64_t size : {uint64_t{1}, kPart - 1, kPart, kPart + 1, 3 * kPart + 5}) {
    uint64_t covered = 0;
    for (uint64_t i = 0; i < ChecksumParts(size); ++i) {
      EXPECT_GT(ChecksumPartBytes(size, i), 0u) << size;
      covered += ChecksumPartBytes(size, i);
    }
    EXPECT_EQ(covered, size);
  }
}

}  // namespace
}  // namespace baton
