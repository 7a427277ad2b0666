#pragma once

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/cluster/reports.h"
#include "common/cluster/worker_info.h"
#include "common/rpc/channel.h"
#include "common/rpc/closing_streams.h"
#include "common/rpc/duplex_stream.h"
#include "common/worker/router_events.h"
#include "common/worker/worker_loop.h"
#include "proto/worker.grpc.pb.h"

namespace baton {

// What all router links of a worker share. Outlives the links.
struct WorkerLinkContext {
  WorkerInfo self;
  ConnectionLimits limits;
  RouterEvents& events;
  WorkerLoop& loop;
  const Clock& clock;
  ClosingStreams& closing;  // takes the streams of links that are destroyed
};

// The worker's end of one WorkerLink stream. Owned by WorkerLinkClients. Used on the worker's
// thread, which also runs the events for received messages. The Add methods collect what Flush
// sends in one message; the worker calls Flush after each batch of tasks, so once per engine step.
class WorkerLinkClient final {
 public:
  // Dials `address` and sends Join. Events of this link carry `key`.
  WorkerLinkClient(RouterKey key, std::string address, const WorkerLinkContext& context);
  // Breaks the stream, without waiting for its end. No event follows.
  ~WorkerLinkClient();

  RouterKey key() const { return key_; }
  const std::string& address() const { return address_; }
  bool joined() const { return joined_; }
  bool ended() const { return ended_; }
  Time opened() const { return opened_; }
  // Why the link ended before it joined. OK when the link had joined.
  const Status& refusal() const { return refusal_; }

  void Add(const TokenOutput& token);
  void Add(const FinishedReport& report);
  void Add(const FailedReport& report);
  void Add(const HandoffReport& report);
  void Add(const CacheEvent& event);
  void AddDrain();
  // Adds a heartbeat when the next one is due.
  void BeatIfDue(Time now);
  void Flush();

  // Sends what was added, then ends the stream in order. For a worker that leaves its router.
  void Leave();
  void Close(const Status& why);
  bool AwaitClosed(Duration timeout) { return stream_->AwaitClosed(timeout); }

 private:
  using Stream = ClientStream<worker::v1::ToRouter, worker::v1::ToWorker>;

  void OnMessage(const worker::v1::ToWorker& message);
  void Run(WorkerCommand command);
  void OnEnded(const Status& status);

  const RouterKey key_;
  const std::string address_;
  const WorkerLinkContext& context_;
  const Time opened_;
  // Cleared on destruction: tasks posted by the stream's callbacks check it.
  std::shared_ptr<WorkerLinkClient*> self_;
  std::shared_ptr<Stream> stream_;
  WorkerReport pending_;
  bool has_pending_ = false;
  bool joined_ = false;
  bool ended_ = false;
  bool leaves_ = false;  // Leave was called
  Status refusal_;
  Duration heartbeat_{};
  Time next_heartbeat_{};
};

}  // namespace baton
