#include "kvtransfer/wire/granule_hasher.h"

#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/hash.h"
#include "tests/conformance/test_memory.h"

namespace baton {
namespace {

// Every kernel, in pieces of every size, gives what xxhash gives for the whole granule.
TEST(GranuleHasherTest, KernelsAgreeWithTheReference) {
  std::vector<std::byte> bytes(60000);
  FillPattern(bytes, 3);
  for (const Xxh3Kernel* kernel : {&Xxh3Portable(), &BestXxh3()}) {
    for (const size_t granule : {1ul, 16ul, 200ul, 1000ul, 20000ul, 60000ul}) {
      for (const size_t piece : {7ul, 64ul, 4096ul, 60000ul}) {
        GranuleHasher hasher(*kernel);
        hasher.Start(granule);
        for (size_t at = 0; at < bytes.size(); at += piece) {
          hasher.Update(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
        }
        const std::vector<uint64_t> checksums = hasher.Take();
        ASSERT_EQ(checksums.size(), bytes.size() / granule);
        for (size_t i = 0; i < checksums.size(); ++i) {
          ASSERT_EQ(checksums[i], Xxh3(std::span(bytes).subspan(i * granule, granule)));
        }
      }
    }
  }
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
