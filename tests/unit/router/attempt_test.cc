// The states of an attempt, for every order in which the two workers' reports can arrive.
#include "router/core/attempt.h"

#include <algorithm>
#include <array>
#include <chrono>

#include <gtest/gtest.h>

namespace baton::router {
namespace {

using std::chrono::seconds;

constexpr Time kStart{std::chrono::hours(1)};
constexpr WorkerSlot kPrefill{1};
constexpr WorkerSlot kDecode{2};
constexpr WorkerSlot kOther{3};

Attempt HandOff() {
  return Attempt(Epoch(7), {0, 1}, 0, {kPrefill, kDecode}, kStart);
}

TEST(AttemptTest, OfADecodeWorkerAloneEndsWithItsLastReport) {
  Attempt attempt(Epoch(7), {0, 1}, 0, {kNoWorker, kDecode}, kStart);
  EXPECT_TRUE(attempt.committed());
  EXPECT_TRUE(attempt.decode_open());
  EXPECT_FALSE(attempt.prefill_open());
  EXPECT_FALSE(attempt.tokens_complete());
  attempt.OnDecodeEnded();
  EXPECT_FALSE(attempt.decode_open());
  EXPECT_TRUE(attempt.tokens_complete());
  EXPECT_TRUE(attempt.accounted());
}

TEST(AttemptTest, EachReportCountsInAnyOrderAndTwice) {
  enum Report { kComputed, kSent, kKvArrived, kEnded };
  std::array<Report, 4> order{kComputed, kSent, kKvArrived, kEnded};
  do {
    Attempt attempt = HandOff();
    std::array<bool, 4> has{};
    for (const Report report : order) {
      has[report] = true;
      for (int times = 0; times < 2; ++times) {
        if (report == kComputed) attempt.OnComputed();
        if (report == kSent) attempt.OnSent();
        if (report == kKvArrived) attempt.OnKvArrived();
        if (report == kEnded) attempt.OnDecodeEnded();
      }
      EXPECT_EQ(attempt.committed(), has[kKvArrived]);
      EXPECT_EQ(attempt.decode_open(), !has[kEnded]);
      EXPECT_EQ(attempt.prefill_open(), !has[kComputed] || !has[kKvArrived]);
      EXPECT_EQ(attempt.tokens_complete(), has[kComputed] && has[kEnded]);
      EXPECT_EQ(attempt.accounted(), has[kComputed] && has[kSent] && has[kEnded]);
      EXPECT_EQ(attempt.decode_worker(), kDecode);
    }
  } while (std::ranges::next_permutation(order).found);
}

TEST(AttemptTest, ARefusalEndsTheDecodePartUntilTheRedirect) {
  for (const bool ended : {false, true}) {
    Attempt attempt = HandOff();
    if (ended) attempt.OnDecodeEnded();
    attempt.OnRefused(BootId(2), kStart);
    EXPECT_EQ(attempt.decode(), nullptr);
    EXPECT_FALSE(attempt.decode_open());
    EXPECT_FALSE(attempt.Uses(kDecode));
    EXPECT_EQ(attempt.redirect_at(), kStart);
    attempt.OnPostponed(kStart + seconds(1));
    EXPECT_EQ(attempt.redirect_at(), kStart + seconds(1));
    attempt.OnRedirected({kOther, Epoch(8), kStart + seconds(2)});
    EXPECT_EQ(attempt.redirect_at(), kNever);
    EXPECT_TRUE(attempt.decode_open());
    EXPECT_FALSE(attempt.committed());
    EXPECT_TRUE(attempt.Has(kOther, Epoch(8)));
    EXPECT_FALSE(attempt.Has(kOther, Epoch(7)));
    EXPECT_TRUE(attempt.Has(kPrefill, Epoch(7)));
  }
}

TEST(AttemptTest, ARefusalAfterTheCommitChangesNothing) {
  Attempt attempt = HandOff();
  attempt.OnKvArrived();
  attempt.OnRefused(BootId(2), kStart);
  EXPECT_TRUE(attempt.committed());
  EXPECT_EQ(attempt.decode_worker(), kDecode);
  EXPECT_TRUE(attempt.refused_by().empty());
}

TEST(AttemptTest, NothingToSendSettlesTheKvAlsoWithoutADecodeWorker) {
  Attempt waiting = HandOff();
  waiting.OnNothingToSend();
  EXPECT_TRUE(waiting.committed());
  EXPECT_TRUE(waiting.decode_open()) << "the decode worker has not reported its end";

  Attempt parked = HandOff();
  parked.OnRefused(BootId(2), kStart);
  parked.OnNothingToSend();
  EXPECT_TRUE(parked.committed());
  EXPECT_EQ(parked.decode(), nullptr);
  EXPECT_EQ(parked.redirect_at(), kNever);
  EXPECT_FALSE(parked.accounted());
  parked.OnComputed();
  EXPECT_TRUE(parked.tokens_complete());
  EXPECT_TRUE(parked.accounted());
}

TEST(AttemptTest, OfAPrefillWorkerThatHasGoneNoReportIsExpected) {
  const auto nothing = [](Attempt&) {};
  const auto computed = [](Attempt& attempt) { attempt.OnComputed(); };
  const auto sent = [](Attempt& attempt) { attempt.OnSent(); };
  for (void (*before)(Attempt&) : {+nothing, +computed, +sent}) {
    Attempt attempt = HandOff();
    before(attempt);
    attempt.OnKvArrived();
    attempt.OnPrefillGone();
    EXPECT_FALSE(attempt.prefill_open());
    EXPECT_FALSE(attempt.accounted());
    attempt.OnDecodeEnded();
    EXPECT_TRUE(attempt.accounted());
  }
}

}  // namespace
}  // namespace baton::router
