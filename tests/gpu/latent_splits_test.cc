#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/latent/latent_kernels.h"
#include "kernels/cuda/latent/latent_splits.h"
#include "kernels/cuda/primitives/rounding.h"

// The H200 runs 66 work tiles of 128 heads at a time.
namespace baton::cuda {
namespace {

constexpr int32_t kSlots = 66;

std::vector<AttentionSequence> Decoding(const std::vector<int32_t>& lengths) {
  std::vector<AttentionSequence> sequences;
  for (const int32_t length : lengths) {
    AttentionSequence& sequence = sequences.emplace_back();
    sequence.rows = 1;
    sequence.length = length;
  }
  return sequences;
}

std::vector<AttentionSequence> Decoding(size_t rows, int32_t length) {
  return Decoding(std::vector<int32_t>(rows, length));
}

TEST(LatentSplitsTest, SplitsAreWholeTiles) {
  for (const int32_t length : {1, 47, 48, 1000, 8192, 100000}) {
    for (const size_t rows : {1, 3, 16, 65, 100, 1000}) {
      const int32_t split = ChooseLatentSplit(Decoding(rows, length), kSlots);
      EXPECT_GT(split, 0);
      EXPECT_EQ(split % kHopperLatentTokens, 0) << rows << " × " << length;
    }
  }
}

TEST(LatentSplitsTest, RowsThatFillTheSlotsAreNotSplit) {
  EXPECT_GE(ChooseLatentSplit(Decoding(64, 8192), kSlots), 8192);
  EXPECT_GE(ChooseLatentSplit(Decoding(66, 32768), kSlots), 32768);
}

TEST(LatentSplitsTest, FewRowsAreSplitForAllSlots) {
  EXPECT_EQ(CeilDiv(8192, ChooseLatentSplit(Decoding(16, 8192), kSlots)), 4);
  const int32_t splits = CeilDiv(131072, ChooseLatentSplit(Decoding(1, 131072), kSlots));
  EXPECT_GE(splits, 60);
  EXPECT_LE(splits, kSlots);
}

// What a split costs more than it gains.
TEST(LatentSplitsTest, ShortContextsAreNotSplit) {
  EXPECT_GE(ChooseLatentSplit(Decoding(1, 300), kSlots), 300);
  EXPECT_GE(ChooseLatentSplit(Decoding(30, 200), kSlots), 200);
}

TEST(LatentSplitsTest, OneLongContextAmongShortOnesIsSplit) {
  std::vector<int32_t> lengths(60, 500);
  lengths.push_back(60000);
  const int32_t split = ChooseLatentSplit(Decoding(lengths), kSlots);
  EXPECT_GE(split, 500);
  EXPECT_LE(split, 8000);
}

TEST(LatentSplitsTest, LongChunksAreNotSplit) {
  std::vector<AttentionSequence> sequences(1);
  sequences[0].rows = 2048;
  sequences[0].length = 8192;
  EXPECT_GE(ChooseLatentSplit(sequences, kSlots), 8192);
}

}  // namespace
}  // namespace baton::cuda
