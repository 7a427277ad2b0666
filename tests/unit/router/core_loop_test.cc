#include "router/core_loop.h"

#include <future>
#include <memory>

#include <gtest/gtest.h>

#include "tests/support/received.h"
#include "tests/unit/router/idle_worker.h"

namespace baton::router {
namespace {

constexpr auto kLimit = std::chrono::seconds(60);

TEST(CoreLoopTest, EachWatcherIsToldTheCurrentReadinessAndEachChange) {
  MetricsRegistry metrics;
  RouterProbe probe(metrics);
  const SteadyClock clock;
  Received<bool> first;
  Received<bool> second;
  CoreLoop core(CoreOptions{}, clock, probe);
  core.WatchReady([&](const Status& ready) { first.Post(ready.ok()); });
  EXPECT_EQ(first.Take(kLimit), false);
  core.WatchReady([&](const Status& ready) { second.Post(ready.ok()); });
  EXPECT_EQ(second.Take(kLimit), false);
  const auto link = std::make_shared<IdleWorkerLink>();
  core.Join(IdleWorker(), link, [](const StatusOr<WorkerSlot>& slot) { EXPECT_TRUE(slot.ok()); });
  EXPECT_EQ(first.Take(kLimit), true);
  EXPECT_EQ(second.Take(kLimit), true);
  core.Left(link);
  EXPECT_EQ(first.Take(kLimit), false);
  EXPECT_EQ(second.Take(kLimit), false);
}

}  // namespace
}  // namespace baton::router
