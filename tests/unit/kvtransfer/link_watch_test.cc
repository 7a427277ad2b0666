#include "kvtransfer/session/link_watch.h"

#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kMega = 1'000'000;
constexpr Time kStart{std::chrono::hours(1)};
constexpr Duration kPatience = seconds(4);

// A link that serves hand-offs in order, in writes of up to `op_bytes`, at `rate` bytes per second.
// Every 20 ms the sender asks which hand-offs are late, and ends them.
class SimulatedLink {
 public:
  SimulatedLink(double rate, uint64_t op_bytes)
      : rate_(rate), op_bytes_(op_bytes), watch_(op_bytes) {
    watch_.SetBusy(true, now_);
  }

  void Add(uint64_t bytes, Duration patience = kPatience) {
    hand_offs_.push_back({now_, bytes, patience});
    numbers_.push_back(added_++);
  }
  void SetRate(double rate) { rate_ = rate; }

  // Runs for `duration`, or until no hand-off is left.
  void Run(Duration duration) {
    const Time end = now_ + duration;
    while (now_ < end && !hand_offs_.empty()) {
      now_ += milliseconds(20);
      Move(rate_ * 0.02);
      const std::vector<LinkWatch::Late> late = watch_.FindLate(hand_offs_, now_);
      for (auto each = late.rbegin(); each != late.rend(); ++each) {
        ended_at_ = now_ - kStart;
        late_.push_back(numbers_[each->index]);
        Erase(each->index);
      }
    }
    if (hand_offs_.empty()) watch_.SetBusy(false, now_);
  }

  const std::vector<int>& late() const { return late_; }
  const std::vector<int>& done() const { return done_; }
  Duration ended_at() const { return ended_at_; }
  double measured() const { return watch_.bytes_per_second(now_); }
  void Idle(Duration duration) { now_ += duration; }

 private:
  void Move(double bytes) {
    moved_ += bytes;
    while (!hand_offs_.empty()) {
      const uint64_t op = std::min(op_bytes_, hand_offs_.front().bytes);
      if (moved_ < static_cast<double>(op)) return;
      moved_ -= static_cast<double>(op);
      watch_.OnWritten(op, now_);
      hand_offs_.front().bytes -= op;
      if (hand_offs_.front().bytes > 0) continue;
      done_.push_back(numbers_.front());
      Erase(0);
    }
  }
  void Erase(size_t index) {
    if (index == 0) moved_ = 0;
    hand_offs_.erase(hand_offs_.begin() + static_cast<ptrdiff_t>(index));
    numbers_.erase(numbers_.begin() + static_cast<ptrdiff_t>(index));
  }

  double rate_;
  const uint64_t op_bytes_;
  LinkWatch watch_;
  Time now_ = kStart;
  double moved_ = 0;  // bytes since the last acknowledgement
  std::vector<LinkWatch::Waiting> hand_offs_;
  std::vector<int> numbers_;
  int added_ = 0;
  std::vector<int> late_;
  std::vector<int> done_;
  Duration ended_at_{};
};

TEST(LinkWatchTest, AHandoffOverASlowLinkIsLateBeforeItsFirstAcknowledgement) {
  SimulatedLink link(1e5, kMega);
  link.Add(30 * kMega);
  link.Run(seconds(60));
  EXPECT_EQ(link.late(), std::vector<int>{0});
  EXPECT_LT(link.ended_at(), seconds(4));
}

// A write of 1 MB takes 10 s. Before its end nobody knows that the link is so slow.
TEST(LinkWatchTest, HandoffsOfFewWritesAreLateSoonAfterTheirPatience) {
  SimulatedLink link(1e5, kMega);
  for (int i = 0; i < 4; ++i) link.Add(kMega);
  link.Run(seconds(60));
  EXPECT_EQ(link.late(), (std::vector<int>{3, 2, 1, 0}));
  EXPECT_LT(link.ended_at(), seconds(6));
}

TEST(LinkWatchTest, AFasterLinkIsNotSlow) {
  for (const double rate : {2e6, 2e7, 2e9}) {
    SimulatedLink link(rate, kMega);
    for (int i = 0; i < 32; ++i) link.Add(kMega / 8);
    link.Run(seconds(60));
    EXPECT_TRUE(link.late().empty()) << rate;
    EXPECT_EQ(link.done().size(), 32u) << rate;
  }
}

// 40 hand-offs need 20 s in all, each of them 0.5 s. Those that the link can serve in time go on.
TEST(LinkWatchTest, HandoffsThatQueueAreNotAllLate) {
  SimulatedLink link(2e6, kMega);
  for (int i = 0; i < 40; ++i) link.Add(kMega);
  link.Run(seconds(60));
  EXPECT_EQ(link.late().size() + link.done().size(), 40u);
  EXPECT_GE(link.done().size(), 10u);
  EXPECT_GE(link.late().size(), 10u);
  for (size_t i = 0; i < link.done().size(); ++i) EXPECT_EQ(link.done()[i], static_cast<int>(i));
}

TEST(LinkWatchTest, AHandoffThatIsWorthWaitingForGoesOn) {
  SimulatedLink link(1e6, kMega);
  link.Add(30 * kMega, seconds(40));
  link.Run(seconds(60));
  EXPECT_EQ(link.done(), std::vector<int>{0});
}

// A late hand-off does not make those behind it late.
TEST(LinkWatchTest, OneLargeHandoffIsLateAlone) {
  SimulatedLink link(2e6, kMega);
  link.Add(100 * kMega);
  link.Add(kMega);
  link.Add(kMega);
  link.Run(seconds(60));
  EXPECT_EQ(link.late(), std::vector<int>{0});
  EXPECT_EQ(link.done(), (std::vector<int>{1, 2}));
}

TEST(LinkWatchTest, AShortStallIsNotASlowLink) {
  for (const Duration before : {Duration(milliseconds(100)), Duration(seconds(5))}) {
    SimulatedLink link(1e7, kMega);
    link.Add(100 * kMega, seconds(20));
    link.Run(before);
    link.SetRate(0);
    link.Run(milliseconds(2500));
    link.SetRate(1e7);
    link.Run(seconds(60));
    EXPECT_TRUE(link.late().empty());
    EXPECT_EQ(link.done(), std::vector<int>{0});
  }
}

TEST(LinkWatchTest, ALinkThatBecomesSlowIsNoticed) {
  SimulatedLink link(1e8, kMega);
  link.Add(1500 * kMega, seconds(20));
  link.Run(seconds(10));
  link.SetRate(1e6);
  link.Run(seconds(60));
  EXPECT_EQ(link.late(), std::vector<int>{0});
  EXPECT_LT(link.ended_at(), seconds(16));
}

TEST(LinkWatchTest, TheRateIsKnownWhileAHandoffIsUnderWay) {
  SimulatedLink link(1e7, kMega);
  EXPECT_EQ(link.measured(), 0);
  link.Add(1000 * kMega, seconds(1000));
  link.Run(seconds(1));
  EXPECT_NEAR(link.measured(), 1e7, 1e6);
  link.SetRate(1e6);
  link.Run(seconds(6));
  EXPECT_NEAR(link.measured(), 1e6, 5e5);
}

TEST(LinkWatchTest, IdleTimeDoesNotLowerTheRateButForgetsIt) {
  SimulatedLink link(1e7, kMega);
  link.Add(10 * kMega);
  link.Run(seconds(10));
  link.Idle(seconds(50));
  EXPECT_NEAR(link.measured(), 1e7, 1e6);
  link.Idle(seconds(11));
  EXPECT_EQ(link.measured(), 0);
}

}  // namespace
}  // namespace baton
