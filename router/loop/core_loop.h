#pragma once

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/base/clock.h"
#include "common/base/mailbox.h"
#include "router/core/router_core.h"
#include "router/loop/keyed_threads.h"
#include "router/router_probe.h"

namespace baton::router {

// The router's end of one worker's stream.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  // Sends the commands without blocking. False when the worker reads too slowly or its stream has
  // ended.
  virtual bool Send(std::vector<WorkerCommand> commands) = 0;
  // Ends the stream. CoreLoop::Left follows.
  virtual void Drop(const Status& why) = 0;
};

// Receives the events of one request. Called on a delivery thread, one call at a time, in order;
// the last event is an Outcome.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  virtual void OnEvents(std::vector<ClientEvent> events) = 0;
};

// The thread that runs RouterCore, and the only access to it. All methods may be called from any
// thread, and none but Query blocks. An exception on the loop's thread ends the process.
class CoreLoop final {
 public:
  using Task = std::function<void(RouterCore&, Time)>;

  // `clock` and `probe` outlive the loop.
  CoreLoop(const CoreOptions& options, const Clock& clock, RouterProbe& probe);
  // The clock of the requests' deadlines.
  const Clock& clock() const { return clock_; }
  // Stops the thread. Requests that still run receive no further events.
  ~CoreLoop();

  // A worker requests to join. `joined` is called on the loop's thread with the slot or the
  // refusal, before any command is sent to `link`.
  void Join(WorkerInfo info,
            std::shared_ptr<WorkerLink> link,
            std::function<void(const StatusOr<WorkerSlot>&)> joined);
  // Records that a stream from `address` was refused before Join.
  void Refuse(const WorkerId& id, const std::string& address, const Status& why);
  // Passes on a message of the link; the order is kept. Messages of a link that has not joined are
  // dropped.
  void Report(std::shared_ptr<WorkerLink> link, WorkerReport report);
  // The link's stream has ended.
  void Left(std::shared_ptr<WorkerLink> link);

  void Submit(std::shared_ptr<const RequestSpec> spec, std::shared_ptr<RequestSink> sink);
  void StopSample(RequestId id, int32_t sample);
  void Cancel(RequestId id, const Status& why);

  // Runs `task` on the loop's thread.
  void Post(Task task);
  // Runs `question` on the loop's thread and returns its result. Blocks for up to one second, then
  // returns Unavailable.
  template <class F>
  auto Query(F question) -> StatusOr<decltype(question(std::declval<RouterCore&>(), Time{}))> {
    using Answer = decltype(question(std::declval<RouterCore&>(), Time{}));
    auto promise = std::make_shared<std::promise<Answer>>();
    std::future<Answer> answer = promise->get_future();
    Post([promise, question](RouterCore& core, Time now) {
      promise->set_value(question(core, now));
    });
    if (answer.wait_for(std::chrono::seconds(1)) != std::future_status::ready) {
      return Status(StatusCode::kUnavailable, "the router is too busy to answer");
    }
    return answer.get();
  }

  // Calls `tell` on the loop's thread with the result of RouterCore::Ready(): once soon, then after
  // each change between ready and not ready. Each call of WatchReady adds a watcher.
  void WatchReady(std::function<void(const Status&)> tell);

  // The properties that all workers share; nullopt until the first worker has joined.
  std::optional<ClusterIdentity> identity() const;
  DecodeArenas decode_arenas() const;

 private:
  struct Mail {
    std::vector<WorkerCommand> commands;
    std::shared_ptr<WorkerLink> link;
  };
  struct ReadyWatcher {
    std::function<void(const Status&)> tell;
    std::optional<bool> told;
  };

  void Run(const std::stop_token& stop);
  void Flush();
  void SetGauges();
  void PublishReady();
  // Carries out the actions of the core. To be called after each input.
  void CarryOut();

  const Clock& clock_;
  RouterProbe& probe_;

  Mailbox<Task> tasks_;
  mutable std::mutex mutex_;  // guards the next two members
  std::optional<ClusterIdentity> identity_;
  DecodeArenas decode_arenas_;

  // Used by the loop's thread only.
  RouterCore core_;
  CoreActions actions_;
  std::array<Mail, kMaxWorkers> mail_;
  absl::flat_hash_map<WorkerLink*, WorkerSlot> slots_;
  absl::flat_hash_map<RequestId, std::shared_ptr<RequestSink>> sinks_;
  absl::flat_hash_map<RequestId, std::vector<ClientEvent>> events_;
  Time next_gauges_{};
  std::vector<ReadyWatcher> ready_watchers_;

  KeyedThreads delivery_;
  std::jthread thread_;
};

}  // namespace baton::router
