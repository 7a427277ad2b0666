#include "kernels/thread_pool.h"

#include <atomic>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ThreadPoolTest, RunsEveryItemOnce) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t items : {0, 1, 2, 3, 17, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(items));
      pool.Run(items, [&](int64_t item, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
        ++runs[static_cast<size_t>(item)];
      });
      for (const auto& count : runs) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPoolTest, ManyShortJobsInARow) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum{0};
  int64_t want = 0;
  for (int64_t job = 0; job < 20000; ++job) {
    // Writes before a job must be visible in the job, and writes of the job after it.
    std::vector<int64_t> out(static_cast<size_t>(1 + job % 5));
    const int64_t value = job;
    pool.Run(static_cast<int64_t>(out.size()), [&](int64_t item, int) {
      out[static_cast<size_t>(item)] = value + item;
      sum.fetch_add(1, std::memory_order_relaxed);
    });
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], job + static_cast<int64_t>(i));
    want += static_cast<int64_t>(out.size());
  }
  EXPECT_EQ(sum, want);
}

TEST(ThreadPoolTest, WorkersTakePart) {
  ThreadPool pool(2);
  // Item 0 ends only when another thread runs item 1.
  std::atomic<bool> other{false};
  pool.Run(2, [&](int64_t item, int) {
    if (item == 1) {
      other = true;
      other.notify_all();
    } else {
      other.wait(false);
    }
  });
  EXPECT_TRUE(other);
}

TEST(ThreadPoolTest, StartsAndStopsAtOnce) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(4);
    pool.Wake();
  }
}

}  // namespace
}  // namespace baton
