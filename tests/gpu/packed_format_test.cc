#include "kernels/cuda/packed/packed_format.h"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/packed/packed_parts.h"

namespace baton::cuda {
namespace {

class PackedTileTest : public ::testing::TestWithParam<bool> {};

// Every number has a place of its own, and NumberAt names the number that is there.
TEST_P(PackedTileTest, PlacesAndNumbersAreInverse) {
  const bool bytes = GetParam();
  const int32_t bits = bytes ? 8 : 4;
  const int32_t words = kTileOutputs * kTileInputs * bits / 32;
  std::vector<int> used(static_cast<size_t>(words * 32 / bits));
  for (int32_t output = 0; output < kTileOutputs; ++output) {
    for (int32_t input = 0; input < kTileInputs; ++input) {
      const PackedPlace place = PlaceInTile(bytes, output, input);
      ASSERT_GE(place.word, 0);
      ASSERT_LT(place.word, words);
      ASSERT_EQ(place.bit % bits, 0);
      const auto at = static_cast<size_t>(place.word) * 32 + static_cast<size_t>(place.bit);
      ++used[at / static_cast<size_t>(bits)];
      const TileNumber number = NumberAt(bytes, place.word, place.bit);
      EXPECT_EQ(number.output, output) << input;
      EXPECT_EQ(number.input, input) << output;
    }
  }
  for (const int uses : used) EXPECT_EQ(uses, 1);
}

// The numbers of a lane for one WGMMA are in one word of 4 bits, or two neighbouring words of 8.
TEST_P(PackedTileTest, ALaneLoadsVectors) {
  const bool bytes = GetParam();
  for (int32_t output = 0; output < kTileOutputs; ++output) {
    for (int32_t input = 0; input < kTileInputs; ++input) {
      const int32_t vector = PlaceInTile(bytes, output, input).word / 4;
      EXPECT_EQ(vector % 32, output % 8 * 4 + input % 8 / 2);
      EXPECT_EQ(vector / 32, bytes ? output / 16 * 2 + input / 32 : output / 16);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Numbers, PackedTileTest, ::testing::Values(false, true));

TEST(PackedFormatTest, PairsHaveTwoOutputsEach) {
  std::vector<int> used(kTileOutputs);
  for (int32_t output = 0; output < kTileOutputs; ++output) {
    const auto pair = static_cast<size_t>(PairOf(output));
    ++used[pair * 2 + static_cast<size_t>(HalfOfPair(output))];
  }
  for (const int uses : used) EXPECT_EQ(uses, 1);
}

// The bits of pair `i` of a word as Unpack takes them: two bf16 numbers, 2^-126 of those of the
// pair.
uint32_t PairOfFp4(uint32_t arranged, int i) {
  if (i < 3) return arranged << (3 * i) & 0x81c081c0;
  return (arranged << 1 & 0x80008000) | (arranged >> 5 & 0x01000100) | (arranged >> 4 & 0x00c000c0);
}

TEST(PackedFormatTest, OneShiftBringsAPairOfFp4ToBf16) {
  for (int i = 0; i < 4; ++i) {
    for (uint32_t low = 0; low < 16; ++low) {
      for (uint32_t high = 0; high < 16; ++high) {
        const uint32_t others = 0xffffffffu & ~(15u << (4 * i)) & ~(15u << (16 + 4 * i));
        for (const uint32_t rest : {0u, others}) {
          const uint32_t word = low << (4 * i) | high << (16 + 4 * i) | rest;
          // Sign at bit 15, exponent and mantissa from bit 8 on.
          const auto in_place = [](uint32_t number) {
            return number >> 3 << 15 | (number & 7) << 6;
          };
          EXPECT_EQ(PairOfFp4(ArrangeFp4(word), i), in_place(low) | in_place(high) << 16)
              << "pair " << i << ", numbers " << low << " and " << high;
        }
      }
    }
  }
}

TEST(PackedFormatTest, CountsBytes) {
  const PackedFormat gptq = {.number = DType::kU4, .group = 128};
  EXPECT_EQ(gptq.chunk_bytes(), 64 * 2 + 64 * 128 / 2);
  EXPECT_EQ(gptq.Bytes(65, 129), int64_t{4} * gptq.chunk_bytes());
  const PackedFormat awq = {.number = DType::kU4, .group = 32, .zeros = true};
  EXPECT_EQ(awq.chunk_bytes(), 2 * (64 * 2 + 32) + 64 * 64 / 2);
  const PackedFormat nvfp4 = {.number = DType::kFp4, .scale = ScaleType::kFp8, .group = 16};
  EXPECT_EQ(nvfp4.chunk_bytes(), 4 * 64 + 64 * 64 / 2);
  const PackedFormat int8 = {.number = DType::kI8, .group = 64, .zeros = true};
  EXPECT_EQ(int8.chunk_bytes(), 64 * 2 + 64 + 64 * 64);
}

// A part of 64 × 256 numbers of 4 bits with groups of `group` inputs.
class PackedPartsTest : public ::testing::Test {
 protected:
  HostMatrix Part(int64_t group, bool zeros) {
    scales_.assign(static_cast<size_t>(int64_t{64} * 256 / group), 0.0f);
    for (size_t i = 0; i < scales_.size(); ++i) scales_[i] = static_cast<float>(i + 1) / 256;
    zeros_.assign(scales_.size(), 3);
    HostMatrix part;
    part.dtype = DType::kU4;
    part.rows = 64;
    part.cols = 256;
    part.groups.scales = scales_.data();
    part.groups.zeros = zeros ? zeros_.data() : nullptr;
    part.groups.zero = 8;
    part.groups.cols = group;
    part.groups.in_row = 256 / group;
    return part;
  }

  std::vector<float> scales_;
  std::vector<int8_t> zeros_;
};

TEST_F(PackedPartsTest, TakesTheGroupsOfAFile) {
  const PackedFormat with = FormatOf(std::vector{Part(32, true)});
  EXPECT_EQ(with, (PackedFormat{.number = DType::kU4, .group = 32, .zeros = true}));
  const PackedFormat without = FormatOf(std::vector{Part(128, false)});
  EXPECT_EQ(without, (PackedFormat{.number = DType::kU4, .group = 128, .zero = 8}));
}

TEST_F(PackedPartsTest, RefusesGroupsAndZeroPointsThatDoNotFit) {
  EXPECT_FALSE(FormatOf(std::vector{Part(8, false)}).is_packed());
  const HostMatrix part = Part(32, true);
  zeros_[5] = 16;
  EXPECT_FALSE(FormatOf(std::vector{part}).is_packed());
  EXPECT_FALSE(FormatOf(std::vector{Part(32, true), Part(64, true)}).is_packed());
}

TEST_F(PackedPartsTest, WritesTheScalesOfEachOutput) {
  const std::vector parts = {Part(64, true)};
  const PackedScales scales = ScalesOf(parts, FormatOf(parts));
  EXPECT_EQ(scales.groups, 4);
  ASSERT_EQ(scales.scales.size(), size_t{64} * 4 * 2);
  EXPECT_EQ(scales.zeros, std::vector<uint8_t>(size_t{64} * 4, 3));
  EXPECT_TRUE(scales.factors.empty());
  // Group 2 of output 1 is the seventh: 7 / 256 in bf16.
  EXPECT_EQ(scales.scales[12], std::byte{0xe0});
  EXPECT_EQ(scales.scales[13], std::byte{0x3c});
}

TEST_F(PackedPartsTest, RepeatsLongGroups) {
  const std::vector parts = {Part(256, false)};
  const PackedFormat format = FormatOf(parts);
  EXPECT_EQ(format.group, 128);
  const PackedScales scales = ScalesOf(parts, format);
  EXPECT_EQ(scales.groups, 2);
  EXPECT_EQ(scales.scales[0], scales.scales[2]);
  EXPECT_EQ(scales.scales[1], scales.scales[3]);
}

}  // namespace
}  // namespace baton::cuda
