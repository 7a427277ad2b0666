#include "common/engine/step_ahead.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace baton {
namespace {

Duration Micros(int64_t count) {
  return std::chrono::microseconds(count);
}

// A host and a device that run decode steps one behind the other.
class Pair {
 public:
  // Runs one step more: the host issues it behind the step that the device computes, then waits for
  // that one.
  void Step(const StepWork& work, Duration host, Duration device) {
    const Time begin = std::max(now_, ahead_.Due(work, begin_));
    planned_before_end_ = end_ - begin;
    now_ = begin + host;
    ahead_.Issued(host);
    const Time issued = now_;
    now_ = std::max(now_, end_);
    ahead_.Ended(work, end_ - begin_);
    waited_ = std::max(issued - end_, Duration{});
    begin_ = std::max(issued, end_);
    end_ = begin_ + device;
  }
  // How long the device waited for the last step.
  Duration waited() const { return waited_; }
  // How long before the end of the step under way the host began with the last one.
  Duration planned_before_end() const { return planned_before_end_; }

 private:
  StepAhead ahead_;
  Time now_ = Time{} + std::chrono::hours(1);
  Time begin_ = now_;  // of the step under way
  Time end_ = now_ + Micros(8000);
  Duration waited_{};
  Duration planned_before_end_{};
};

TEST(StepAheadTest, TheDeviceNeverWaitsForAHostThatIsFastEnough) {
  const StepWork work = {.decodes = 512, .decode_context = 1 << 20};
  for (const int64_t host : {50, 200, 900, 2500, 7000}) {
    SCOPED_TRACE(host);
    Pair pair;
    for (int i = 0; i < 300; ++i) {
      pair.Step(work, Micros(host), Micros(8000 + i % 7 * 50));
      ASSERT_EQ(pair.waited(), Duration{}) << "step " << i;
    }
    EXPECT_LE(pair.planned_before_end(), Micros(host + 1000));
  }
}

TEST(StepAheadTest, ASlowHostDelaysStepsByItsOwnTimeAlone) {
  const StepWork work = {.decodes = 512, .decode_context = 1 << 20};
  Pair pair;
  for (int i = 0; i < 300; ++i) {
    pair.Step(work, Micros(9000), Micros(8000));
    ASSERT_LE(pair.waited(), Micros(1100)) << "step " << i;
  }
}

TEST(StepAheadTest, OneSlowStepOfTheHostIsForgotten) {
  const StepWork work = {.decodes = 64, .decode_context = 1 << 16};
  Pair pair;
  for (int i = 0; i < 20; ++i) pair.Step(work, Micros(100), Micros(8000));
  pair.Step(work, Micros(40000), Micros(8000));
  EXPECT_GT(pair.waited(), Micros(30000));
  for (int i = 0; i < 60; ++i) {
    pair.Step(work, Micros(100), Micros(8000));
    ASSERT_EQ(pair.waited(), Duration{}) << "step " << i;
  }
  EXPECT_LE(pair.planned_before_end(), Micros(1200));
}

TEST(StepAheadTest, PlansAtOnceBehindAStepOfUnknownTime) {
  StepAhead ahead;
  const Time now = Time{} + std::chrono::hours(1);
  EXPECT_LT(ahead.Due({.decodes = 8}, now), now);
  ahead.Ended({.decodes = 8}, Micros(5000));
  EXPECT_GT(ahead.Due({.decodes = 8}, now), now);
  EXPECT_LT(ahead.Due({.decodes = 9}, now), now);
  EXPECT_LT(ahead.Due({.decodes = 8, .prompt_tokens = 1}, now), now);
  ahead.Ended({.decodes = 8, .prompt_tokens = 100}, Micros(90000));
  EXPECT_EQ(ahead.Due({.decodes = 8}, now), now + Micros(5000 - 100 - 600));
}

}  // namespace
}  // namespace baton
