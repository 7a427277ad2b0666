#include "kvtransfer/wire/granule_hasher.h"

#include <algorithm>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/granule_checksum.h"
#include "tests/conformance/test_memory.h"

namespace baton {
namespace {

// The hasher's checksums of `bytes`, passed in pieces of `piece` bytes.
std::vector<uint64_t> Checksums(const Xxh3Kernel& kernel,
                                std::span<const std::byte> bytes,
                                size_t granule,
                                size_t piece) {
  GranuleHasher hasher(kernel);
  hasher.Start(granule);
  for (size_t at = 0; at < bytes.size(); at += piece) {
    hasher.Update(bytes.subspan(at, std::min(piece, bytes.size() - at)));
  }
  return hasher.Take();
}

// Every kernel, with pieces of any size, gives the checksum that the definition gives for the whole
// granule.
TEST(GranuleHasherTest, KernelsAgreeWithTheDefinition) {
  constexpr size_t kPart = kChecksumPartBytes;
  std::vector<std::byte> bytes(4 * kPart + 96);
  FillPattern(bytes, 3);
  for (const Xxh3Kernel* kernel : {&Xxh3Portable(), &BestXxh3()}) {
    for (const size_t granule : {size_t{16},
                                 size_t{240},
                                 size_t{241},
                                 size_t{1000},
                                 kPart - 1,
                                 kPart,
                                 kPart + 1,
                                 kPart + 16,
                                 2 * kPart,
                                 2 * kPart + 48,
                                 4 * kPart + 96}) {
      for (const size_t piece :
           {size_t{7}, size_t{64}, size_t{4096}, size_t{33333}, bytes.size()}) {
        const auto checksums = Checksums(*kernel, bytes, granule, piece);
        ASSERT_EQ(checksums.size(), bytes.size() / granule);
        for (size_t i = 0; i < checksums.size(); ++i) {
          ASSERT_EQ(checksums[i], GranuleChecksum(std::span(bytes).subspan(i * granule, granule)))
              << "granule " << granule << ", piece " << piece;
        }
      }
    }
  }
}

TEST(GranuleHasherTest, ManyPartsOfBlocks) {
  for (const size_t granule : {size_t{2} << 20, (size_t{2} << 20) + 48}) {
    std::vector<std::byte> bytes(granule);
    FillPattern(bytes, 4);
    const std::vector<uint64_t> expected = {GranuleChecksum(bytes)};
    for (const size_t piece : {size_t{1001}, size_t{40000}, granule}) {
      EXPECT_EQ(Checksums(BestXxh3(), bytes, granule, piece), expected) << piece;
    }
  }
}

TEST(GranuleHasherTest, StartForgetsAHalfReadGranule) {
  std::vector<std::byte> bytes(2 * kChecksumPartBytes);
  FillPattern(bytes, 5);
  GranuleHasher hasher;
  hasher.Start(bytes.size());
  hasher.Update(std::span(bytes).first(kChecksumPartBytes + 100));
  hasher.Start(bytes.size());
  hasher.Update(bytes);
  EXPECT_EQ(hasher.Take(), std::vector{GranuleChecksum(bytes)});
}

TEST(GranuleHasherTest, GranuleZeroHashesNothing) {
  std::vector<std::byte> bytes(100);
  GranuleHasher hasher;
  hasher.Start(0);
  hasher.Update(bytes);
  EXPECT_TRUE(hasher.Take().empty());
}

}  // namespace
}  // namespace baton
