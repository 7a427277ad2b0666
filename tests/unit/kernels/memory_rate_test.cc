#include "kernels/memory_rate.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace baton {
namespace {

using std::chrono::milliseconds;

// Each thread uses 1 ms of its processor in a pass, however long the pass takes.
TEST(MemoryRateTest, OnlyProcessorTimeCounts) {
  for (const int threads : {1, 4}) {
    const double rate = MeasureMemoryRate(threads, [] {
      thread_local Duration used{};
      return used += milliseconds(1);
    });
    EXPECT_GE(rate, 60e9) << "64 MiB or more in 1 ms";
    EXPECT_LE(rate, 270e9) << "256 MiB or less in 1 ms";
  }
}

TEST(MemoryRateTest, ASleepingThreadUsesNoProcessorTime) {
  const Duration before = ThreadProcessorTime();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_LT(ThreadProcessorTime() - before, milliseconds(100));
}

TEST(MemoryRateTest, ThisMachineHasARate) {
  const double rate = MeasureMemoryRate(2);
  EXPECT_GT(rate, 0.1e9);
  EXPECT_LT(rate, 5e12);
}

}  // namespace
}  // namespace baton
