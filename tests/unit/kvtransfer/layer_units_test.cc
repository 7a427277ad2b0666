#include "kvtransfer/session/layer_units.h"

#include <chrono>
#include <vector>

#include <gmock/gmock.h>

#include "kvtransfer/wire/rate_meter.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

const std::vector<int32_t> kEnds = {9, 18, 28, 32};

TEST(ExposedTimeTest, IsThatOfTheLastUnitWhereTheLinkKeepsUp) {
  const ChunkCosts fast{1.0, 0.25, 0.01};
  EXPECT_NEAR(ExposedSeconds(kEnds, fast), 4 * 0.25 + 0.01, 1e-9);
  EXPECT_NEAR(ExposedSeconds(std::vector{32}, fast), 32 * 0.25 + 0.01, 1e-9);
}

TEST(ExposedTimeTest, CountsTheBacklogOfASlowLink) {
  // The first unit is sent from second 9 on; then the link is never idle.
  EXPECT_NEAR(ExposedSeconds(kEnds, {1.0, 2.0, 0}), 9 + 32 * 2.0 - 32, 1e-9);
}

TEST(ChooseUnitsTest, OfAFastLinkOnlyTheLastUnitIsExposed) {
  // 28 layers are sent while the last four are computed.
  EXPECT_THAT(ChooseUnits(kEnds, {1.0, 0.1, 0.001}), ElementsAre(28, 32));
}

TEST(ChooseUnitsTest, TheUnitsShrinkAsTheLinkGetsSlower) {
  // 28 layers are not sent while four are computed, but ten are.
  EXPECT_THAT(ChooseUnits(kEnds, {1.0, 0.3, 0.001}), ElementsAre(18, 28, 32));
  EXPECT_THAT(ChooseUnits(kEnds, {1.0, 0.6, 0.001}), ElementsAre(9, 18, 28, 32));
}

TEST(ChooseUnitsTest, OfASlowLinkTheFirstUnitBeginsEarly) {
  const std::vector<int32_t> units = ChooseUnits(kEnds, {1.0, 4.0, 0.001});
  EXPECT_EQ(units.front(), 9);
  EXPECT_EQ(units.size(), 2u) << "the link is busy with the first unit until all is computed";
}

TEST(ChooseUnitsTest, UnitsThatCostMoreThanTheyHideAreNotMade) {
  EXPECT_THAT(ChooseUnits(kEnds, {0.001, 0.0001, 5.0}), ElementsAre(32));
  EXPECT_THAT(ChooseUnits(std::vector{7}, {1, 1, 1}), ElementsAre(7));
}

// Never worse than all groups, and never more units than needed.
TEST(ChooseUnitsTest, IsNeverWorseThanEveryGroup) {
  for (double send = 0.01; send < 10; send *= 1.3) {
    for (double unit = 0.0001; unit < 10; unit *= 3) {
      const ChunkCosts costs{1.0, send, unit};
      const std::vector<int32_t> units = ChooseUnits(kEnds, costs);
      EXPECT_LE(ExposedSeconds(units, costs), ExposedSeconds(kEnds, costs) * 1.01);
      for (size_t i = 0; i + 1 < units.size(); ++i) {
        std::vector<int32_t> fewer = units;
        fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(i));
        EXPECT_GT(ExposedSeconds(fewer, costs), ExposedSeconds(units, costs))
            << send << " " << unit;
      }
    }
  }
}

TEST(ComputeMeterTest, MeasuresBetweenReportsOfTheSameBlocks) {
  const SessionKey a(SessionId(1), Epoch(1));
  const SessionKey b(SessionId(2), Epoch(1));
  Time now = Time{} + std::chrono::hours(1);
  ComputeMeter meter;
  meter.OnLayers(a, 0, 4, 8, now);
  EXPECT_EQ(meter.seconds_per_layer(), 0);
  meter.OnLayers(b, 0, 4, 8, now += milliseconds(900));
  EXPECT_EQ(meter.seconds_per_layer(), 0) << "another session";
  meter.OnLayers(b, 0, 4, 16, now += milliseconds(64));
  EXPECT_NEAR(meter.seconds_per_layer(), 0.002, 1e-9);
  meter.OnLayers(b, 4, 4, 8, now += milliseconds(500));
  EXPECT_NEAR(meter.seconds_per_layer(), 0.002, 1e-9) << "other blocks";
  meter.OnLayers(b, 4, 2, 16, now += milliseconds(64));
  EXPECT_NEAR(meter.seconds_per_layer(), 0.0024, 1e-9) << "a new measurement counts a fifth";
}

TEST(RateMeterTest, CountsTheTimeDuringWhichBytesMove) {
  Time now = Time{} + std::chrono::hours(1);
  RateMeter meter;
  EXPECT_EQ(meter.bytes_per_second(), 0);
  meter.OnMoved(1000);
  meter.OnPoll(now, false);
  EXPECT_EQ(meter.bytes_per_second(), 0) << "no time was measured";
  meter.OnPoll(now, true);
  meter.OnMoved(500'000);
  meter.OnPoll(now += milliseconds(100), true);
  meter.OnMoved(500'000);
  meter.OnPoll(now += milliseconds(100), false);
  EXPECT_NEAR(meter.bytes_per_second(), 5e6, 1);
  now += std::chrono::hours(1);
  meter.OnPoll(now, true);
  meter.OnMoved(100'000);
  meter.OnPoll(now += milliseconds(200), false);
  EXPECT_NEAR(meter.bytes_per_second(), (0.8e6 + 0.1e6) / (0.16 + 0.2), 1);
}

}  // namespace
}  // namespace baton
