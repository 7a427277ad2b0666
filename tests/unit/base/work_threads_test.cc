#include "common/base/work_threads.h"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(WorkThreads, BeginWorkInOrder) {
  std::vector<int> order;
  {
    WorkThreads threads("work", 1);
    for (int i = 0; i < 100; ++i) threads.Post([&order, i] { order.push_back(i); });
  }
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

// The destructor begins while the first functions run.
TEST(WorkThreads, EndAfterAllWork) {
  std::atomic<int> done = 0;
  {
    WorkThreads threads("work", 2);
    for (int i = 0; i < 2; ++i) {
      threads.Post([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        ++done;
      });
    }
    for (int i = 0; i < 50; ++i) threads.Post([&] { ++done; });
  }
  EXPECT_EQ(done, 52);
}

TEST(WorkThreads, DropWhatHasNotBegun) {
  std::atomic<int> done = 0;
  std::promise<void> begun;
  std::promise<void> go;
  {
    WorkThreads threads("work", 1);
    threads.Post([&] {
      begun.set_value();
      go.get_future().wait();
      ++done;
    });
    begun.get_future().wait();
    for (int i = 0; i < 5; ++i) threads.Post([&] { ++done; });
    threads.DropWaiting();
    go.set_value();
  }
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace baton
