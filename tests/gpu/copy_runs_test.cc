#include "kernels/cuda/dma/copy_runs.h"

#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace baton::cuda {
namespace {

TEST(PlanCopiesTest, JoinsNeighbours) {
  const std::vector<CopyRun> runs = {{0, 100, 8}, {8, 108, 8}, {16, 200, 8}, {30, 208, 8}};
  const std::vector<StridedCopy> expected = {
      {{0, 100, 16}, 0, 0, 1}, {{16, 200, 8}, 0, 0, 1}, {{30, 208, 8}, 0, 0, 1}};
  EXPECT_EQ(PlanCopies(runs), expected);
}

TEST(PlanCopiesTest, MakesOneCopyOfEqualDistances) {
  std::vector<CopyRun> runs;
  for (uint64_t i = 0; i < 6; ++i) runs.push_back({i * 64, 1000 + i * 32, 16});
  const std::vector<StridedCopy> expected = {{{0, 1000, 16}, 64, 32, 6}};
  EXPECT_EQ(PlanCopies(runs), expected);
}

TEST(PlanCopiesTest, LeavesWhatGoesBackwardsOrOverlaps) {
  std::vector<CopyRun> runs;
  for (uint64_t i = 0; i < 6; ++i) runs.push_back({i * 64, 1000 - i * 32, 16});
  for (uint64_t i = 0; i < 6; ++i) runs.push_back({4096 + i * 8, 4096 + i * 64, 16});
  EXPECT_EQ(PlanCopies(runs).size(), runs.size());
}

// The planned copies move the same bytes as the runs, for all kinds of runs.
TEST(PlanCopiesTest, CopiesTheSame) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<CopyRun> runs;
    uint64_t source = 0;
    uint64_t destination = 0;
    uint64_t step = 8;
    for (uint64_t i = random() % 20; i > 0; --i) {
      if (random() % 3 == 0) step = 8 * (1 + random() % 3);
      runs.push_back({source, destination, 8});
      source += step;
      destination += random() % 4 == 0 ? 24 : step;
    }
    std::vector<uint64_t> expected(4096, ~uint64_t{0});
    for (const CopyRun& run : runs) expected[run.destination / 8] = run.source / 8;
    std::vector<uint64_t> got(4096, ~uint64_t{0});
    for (const StridedCopy& copy : PlanCopies(runs)) {
      for (uint64_t row = 0; row < copy.rows; ++row) {
        for (uint64_t at = 0; at < copy.first.bytes; at += 8) {
          const uint64_t to = copy.first.destination + row * copy.destination_pitch + at;
          got[to / 8] = (copy.first.source + row * copy.source_pitch + at) / 8;
        }
      }
    }
    ASSERT_EQ(got, expected) << round;
  }
}

}  // namespace
}  // namespace baton::cuda
