#include "kernels/cuda/latent/latent_splits.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/table/latent_request.h"

// The H200 runs 66 work tiles of 128 heads at a time.
namespace baton::cuda {
namespace {

constexpr int32_t kSlots = 66;

int32_t SplitOf(const std::vector<LatentRows>& rows) {
  return ChooseLatentSplit(rows, kSlots);
}

// Splits of each of `rows` rows with `positions` positions.
int32_t SplitsOf(int32_t rows, int32_t positions) {
  const int32_t split = SplitOf({{rows, positions}});
  return (positions + split - 1) / split;
}

TEST(LatentSplitsTest, SplitsAreWholeTiles) {
  for (const int32_t length : {1, 47, 48, 1000, 8192, 100000}) {
    for (const int32_t rows : {1, 3, 16, 65, 100, 1000}) {
      const int32_t split = SplitOf({{rows, length}});
      EXPECT_GT(split, 0);
      EXPECT_EQ(split % kHopperLatentTokens, 0) << rows << " × " << length;
    }
  }
}

TEST(LatentSplitsTest, RowsThatFillTheSlotsAreNotSplit) {
  EXPECT_EQ(SplitsOf(64, 8192), 1);
  EXPECT_EQ(SplitsOf(66, 32768), 1);
}

TEST(LatentSplitsTest, FewRowsAreSplitForAllSlots) {
  EXPECT_EQ(SplitsOf(16, 8192), 4);
  const int32_t splits = SplitsOf(1, 131072);
  EXPECT_GE(splits, 60);
  EXPECT_LE(splits, kSlots);
}

// What a split costs more than it gains.
TEST(LatentSplitsTest, ShortContextsAreNotSplit) {
  EXPECT_EQ(SplitsOf(1, 300), 1);
  EXPECT_EQ(SplitsOf(30, 200), 1);
}

TEST(LatentSplitsTest, OneLongContextAmongShortOnesIsSplit) {
  const int32_t split = SplitOf({{60, 500}, {1, 60000}});
  EXPECT_GE(split, 500);
  EXPECT_LE(split, 8000);
}

TEST(LatentSplitsTest, LongChunksAreNotSplit) {
  EXPECT_EQ(SplitsOf(2048, 8192), 1);
}

}  // namespace
}  // namespace baton::cuda
