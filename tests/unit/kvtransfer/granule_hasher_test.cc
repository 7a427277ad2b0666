#include "kvtransfer/wire/granule_hasher.h"

#include <algorithm>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/granule_checksum.h"
#include "kvtransfer/wire/xxh3_kernel.h"
#include "tests/conformance/test_memory.h"
#include "tests/support/avx_state.h"

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

TEST(GranuleHasherTest, KernelsLeaveNoAvxStateBehind) {
  if (!TellsAvxState()) GTEST_SKIP() << "this processor does not tell whether AVX is in use";
  const Xxh3Kernel& kernel = BestXxh3();
  std::vector<std::byte> from(1 << 16);
  std::vector<std::byte> to(from.size());
  void* const state = kernel.create();
  kernel.reset(state);
  EXPECT_FALSE(AvxInUse());
  for (const size_t size : {size_t{100}, size_t{700}, size_t{5000}, from.size()}) {
    kernel.update(state, from.data(), size);
    EXPECT_FALSE(AvxInUse()) << "update of " << size;
    (void)kernel.digest(state);
    EXPECT_FALSE(AvxInUse()) << "digest of " << size;
    (void)kernel.once(from.data(), size);
    EXPECT_FALSE(AvxInUse()) << "once of " << size;
    kernel.copy(to.data(), from.data(), size);
    EXPECT_FALSE(AvxInUse()) << "copy of " << size;
    (void)kernel.copy_once(to.data(), from.data(), size);
    EXPECT_FALSE(AvxInUse()) << "copy_once of " << size;
  }
  kernel.destroy(state);
}

// Copies of any size, to and from addresses of any alignment, equal their source, leave the bytes
// around them alone, and give the checksums of Update.
TEST(GranuleHasherTest, CopiesAndHashesInOnePass) {
  constexpr size_t kPart = kChecksumPartBytes;
  constexpr std::byte kUntouched{0xa5};
  const std::vector<std::byte> source = Pattern(3 * kPart + 200, 6);
  for (const Xxh3Kernel* kernel : {&Xxh3Portable(), &BestXxh3()}) {
    for (const size_t size : {size_t{1},
                              size_t{64},
                              size_t{240},
                              size_t{1023},
                              size_t{1024},
                              size_t{1025},
                              size_t{4096},
                              size_t{4097},
                              size_t{8192 + 64},
                              kPart,
                              2 * kPart + 8192,
                              3 * kPart + 63}) {
      for (const size_t shift : {size_t{0}, size_t{1}, size_t{16}, size_t{32}, size_t{40}}) {
        const std::span<const std::byte> from = std::span(source).subspan(64 - shift, size);
        for (const size_t granule : {size_t{0}, size}) {
          // Pieces of 5,000 bytes end within parts, and so do not go through copy_once.
          for (const size_t piece : {size, size_t{5000}}) {
            std::vector<std::byte> memory(size + 256, kUntouched);
            const size_t aligned = 128 - reinterpret_cast<uintptr_t>(memory.data()) % 64;
            std::byte* const to = memory.data() + aligned + shift;
            GranuleHasher hasher(*kernel);
            hasher.Start(granule);
            for (size_t at = 0; at < size; at += piece) {
              hasher.Copy(to + at, from.subspan(at, std::min(piece, size - at)));
            }
            const auto where = ::testing::Message()
                               << "size " << size << ", shift " << shift << ", granule " << granule
                               << ", piece " << piece;
            ASSERT_TRUE(std::ranges::equal(std::span(to, size), from)) << where;
            const auto untouched = [&](std::byte byte) { return byte == kUntouched; };
            ASSERT_TRUE(std::all_of(memory.data(), to, untouched)) << where;
            ASSERT_TRUE(std::all_of(to + size, memory.data() + memory.size(), untouched)) << where;
            const std::vector<uint64_t> expected =
                granule == 0 ? std::vector<uint64_t>() : std::vector{GranuleChecksum(from)};
            ASSERT_EQ(hasher.Take(), expected) << where;
          }
        }
      }
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
