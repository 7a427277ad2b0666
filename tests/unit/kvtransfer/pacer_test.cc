#include "kvtransfer/wire/pacer.h"

#include <chrono>
#include <limits>

#include <gtest/gtest.h>

#include "common/base/clock.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kRate = 1'000'000;
constexpr uint64_t kBurstBytes = 2'000;  // of Pacer::kBurst at kRate

class PacerTest : public testing::Test {
 protected:
  Time now_ = Time{} + seconds(1000);
};

TEST_F(PacerTest, WithoutARateEverythingMoves) {
  Pacer pacer;
  EXPECT_EQ(pacer.Allowance(now_), std::numeric_limits<uint64_t>::max());
  pacer.Spend(uint64_t{1} << 60);
  EXPECT_EQ(pacer.Allowance(now_), std::numeric_limits<uint64_t>::max());
  EXPECT_LE(pacer.next(), now_);
}

// A user that moves all it may, whenever it may, in pieces of any size.
TEST_F(PacerTest, TheRateHoldsOverEveryInterval) {
  for (const uint64_t piece : {1u, 700u, 5'000u, 300'000u}) {
    Pacer pacer(kRate);
    uint64_t moved = 0;
    const Time begin = now_;
    for (int i = 0; i < 2000; ++i) {
      if (pacer.Allowance(now_) == 0) {
        ASSERT_GT(pacer.next(), now_);
        now_ = pacer.next();
        ASSERT_GT(pacer.Allowance(now_), 0u) << "next() is too early";
      }
      // Before this piece, all that moved fits the rate and one burst.
      const double allowed = kRate * ToSeconds(now_ - begin) + kBurstBytes;
      ASSERT_LE(static_cast<double>(moved), allowed + 1) << "pieces of " << piece;
      pacer.Spend(piece);
      moved += piece;
    }
    const double expected = kRate * ToSeconds(now_ - begin);
    EXPECT_NEAR(static_cast<double>(moved), expected, kBurstBytes + static_cast<double>(piece) + 2);
  }
}

TEST_F(PacerTest, ALongPauseAllowsOneBurstOnly) {
  Pacer pacer(kRate);
  EXPECT_EQ(pacer.Allowance(now_), kBurstBytes);
  pacer.Spend(kBurstBytes);
  EXPECT_EQ(pacer.Allowance(now_), 0u);
  now_ += std::chrono::microseconds(900);
  EXPECT_EQ(pacer.Allowance(now_), 0u) << "small pieces cost more than they bring";
  now_ += std::chrono::microseconds(200);
  EXPECT_NEAR(static_cast<double>(pacer.Allowance(now_)), 1100, 1);
  now_ += seconds(60);
  EXPECT_EQ(pacer.Allowance(now_), kBurstBytes);
}

TEST_F(PacerTest, ATimeInThePastChangesNothing) {
  Pacer pacer(kRate);
  pacer.Allowance(now_);
  pacer.Spend(kBurstBytes);
  EXPECT_EQ(pacer.Allowance(now_ - seconds(5)), 0u);
  EXPECT_EQ(pacer.Allowance(now_), 0u);
}

TEST_F(PacerTest, ANewRateHoldsAtOnce) {
  Pacer pacer(kRate);
  pacer.Allowance(now_);
  pacer.Spend(kBurstBytes + 1000);
  EXPECT_EQ(pacer.Allowance(now_), 0u);
  pacer.SetRate(10 * kRate);
  now_ += std::chrono::microseconds(1200);
  EXPECT_NEAR(static_cast<double>(pacer.Allowance(now_)), 11'000, 1);
  pacer.SetRate(0);
  EXPECT_EQ(pacer.Allowance(now_), std::numeric_limits<uint64_t>::max());
}

}  // namespace
}  // namespace baton
