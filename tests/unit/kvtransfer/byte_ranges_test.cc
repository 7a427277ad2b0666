#include "kvtransfer/wire/byte_ranges.h"

#include <vector>

#include <gtest/gtest.h>

#include "kvtransfer/wire/frame.h"
#include "kvtransfer/wire/window_table.h"
#include "tests/fakes/host_buffer.h"

namespace baton {
namespace {

using Ranges = std::vector<ByteRange>;

TEST(ByteRangesTest, RunsThatContinueEachOtherOnOneSideAreOneRangeThere) {
  const std::vector<WriteRun> runs = {{0, 100, 10}, {20, 110, 10}, {30, 120, 5}, {50, 80, 7}};
  EXPECT_EQ(SourceRanges(runs), (Ranges{{0, 10}, {20, 15}, {50, 7}}));
  EXPECT_EQ(DestinationRanges(runs), (Ranges{{100, 25}, {80, 7}}));
  EXPECT_TRUE(SourceRanges({}).empty());
  EXPECT_TRUE(DestinationRanges({}).empty());
}

bool Allows(const Ranges& allowed, const Ranges& written) {
  return CheckDestinations(written, allowed).ok();
}

TEST(ByteRangesTest, EveryRangeMustLieInOneAllowedRange) {
  const Ranges allowed = {{100, 50}, {200, 50}};
  EXPECT_TRUE(Allows(allowed, {}));
  EXPECT_TRUE(Allows(allowed, {{100, 50}, {200, 50}, {120, 1}, {249, 1}}));
  for (const ByteRange& outside : Ranges{{0, 10},
                                         {99, 2},
                                         {149, 2},
                                         {150, 1},
                                         {160, 10},
                                         {140, 70},
                                         {249, 2},
                                         {300, 1},
                                         {~uint64_t{0} - 4, 200},
                                         {120, ~uint64_t{0} - 10}}) {
    EXPECT_FALSE(Allows(allowed, {outside})) << outside.offset << "+" << outside.bytes;
    EXPECT_FALSE(Allows(allowed, {{100, 10}, {210, 10}, outside}));
  }
  EXPECT_FALSE(Allows({}, {{0, 1}}));
}

// The ranges of a write are joined, so those of its window must be, too.
TEST(ByteRangesTest, AWindowOfAdjacentRangesTakesAWriteAcrossThem) {
  const HostBuffer memory(64);
  WindowTable windows;
  const auto region = windows.Add(memory);
  ASSERT_TRUE(windows.Open({1, region->id(), {{0, 16}, {16, 16}, {40, 8}}}).ok());
  EXPECT_EQ(windows.FindWindow(1)->ranges, (Ranges{{0, 32}, {40, 8}}));
  EXPECT_TRUE(windows.CheckWrite(1, region->id(), Ranges{{8, 16}}).ok());
  EXPECT_FALSE(windows.CheckWrite(1, region->id(), Ranges{{24, 16}}).ok());
  windows.Remove(1);
}

}  // namespace
}  // namespace baton
