#include "router/loop/core_loop.h"

#include <future>
#include <memory>
#include <optional>
#include <vector>

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

// Records the kinds of the commands that it receives.
class RecordingLink final : public WorkerLink {
 public:
  bool Send(std::vector<WorkerCommand> commands) override {
    for (const WorkerCommand& command : commands) kinds_.Post(command.index());
    return true;
  }
  void Drop(const Status&) override {}
  std::optional<size_t> Next() { return kinds_.Take(kLimit); }

 private:
  Received<size_t> kinds_;
};

class NoSink final : public RequestSink {
  void OnEvents(std::vector<ClientEvent>) override {}
};

// The cancel of the request of the worker that leaves belongs to this worker, whose slot the next
// worker gets.
TEST(CoreLoopTest, AWorkerReceivesNoCommandsForTheFormerWorkerInItsSlot) {
  MetricsRegistry metrics;
  RouterProbe probe(metrics);
  const SteadyClock clock;
  CoreLoop core(CoreOptions{}, clock, probe);
  const size_t snapshot = WorkerCommand(SnapshotCommand{}).index();
  const auto joined = [](const StatusOr<WorkerSlot>& slot) { EXPECT_EQ(*slot, WorkerSlot(0)); };
  const auto first = std::make_shared<RecordingLink>();
  core.Join(IdleWorker(), first, joined);
  EXPECT_EQ(first->Next(), snapshot);
  auto spec = std::make_shared<RequestSpec>();
  spec->id = RequestId(1);
  spec->prompt = std::vector<TokenId>(8, 1);
  core.Submit(spec, std::make_shared<NoSink>());
  EXPECT_EQ(first->Next(), WorkerCommand(DispatchCommand{}).index());

  // Holds the thread of the core, so that both inputs are in one batch.
  std::promise<void> go_on;
  core.Post([&](RouterCore&, Time) { go_on.get_future().wait(); });
  const auto second = std::make_shared<RecordingLink>();
  core.Left(first);
  core.Join(IdleWorker(), second, joined);
  go_on.set_value();
  EXPECT_EQ(second->Next(), snapshot);
}

}  // namespace
}  // namespace baton::router
