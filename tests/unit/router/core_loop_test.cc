#include "router/core_loop.h"

#include <future>
#include <memory>

#include <gtest/gtest.h>

#include "common/base/bounded_queue.h"
#include "tests/unit/router/idle_worker.h"

namespace baton::router {
namespace {

constexpr auto kLimit = std::chrono::seconds(60);

TEST(CoreLoopTest, EachWatcherIsToldTheCurrentReadinessAndEachChange) {
  MetricsRegistry metrics;
  RouterProbe probe(metrics);
  const SteadyClock clock;
  BoundedQueue<bool> first{10};
  BoundedQueue<bool> second{10};
  CoreLoop core(CoreOptions{}, clock, probe);
  core.WatchReady([&](const Status& ready) { first.TryPush(ready.ok()); });
  EXPECT_EQ(first.Pop(kLimit), false);
  core.WatchReady([&](const Status& ready) { second.TryPush(ready.ok()); });
  EXPECT_EQ(second.Pop(kLimit), false);
  const auto link = std::make_shared<IdleWorkerLink>();
  core.Join(IdleWorker(), link, [](const StatusOr<WorkerSlot>& slot) { EXPECT_TRUE(slot.ok()); });
  EXPECT_EQ(first.Pop(kLimit), true);
  EXPECT_EQ(second.Pop(kLimit), true);
  core.Left(link);
  EXPECT_EQ(first.Pop(kLimit), false);
  EXPECT_EQ(second.Pop(kLimit), false);
}

}  // namespace
}  // namespace baton::router
