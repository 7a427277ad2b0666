#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/cluster/worker_info.h"
#include "common/rpc/duplex_stream.h"
#include "proto/worker.pb.h"
#include "router/loop/core_loop.h"

namespace baton::router {

// One worker's stream, from its Join to its end: checks the worker's messages, passes them to the
// core, and sends the core's commands. Thread-safe. Lives as long as the stream or the core uses
// it.
class WorkerLinkServer final : public WorkerLink,
                               public std::enable_shared_from_this<WorkerLinkServer> {
 public:
  using Stream = ServerStream<worker::v1::ToWorker, worker::v1::ToRouter>;

  // `core` outlives the link.
  WorkerLinkServer(const Welcome& welcome, CoreLoop& core, std::string address)
      : welcome_(welcome), core_(core), address_(std::move(address)) {}

  // To be called before the first message.
  void Attach(std::shared_ptr<Stream> stream) { stream_ = std::move(stream); }
  // Handles one message of the worker. An error ends the stream.
  Status OnMessage(const worker::v1::ToRouter& message);
  void OnClosed(const Status& why);

  bool Send(std::vector<WorkerCommand> commands) override;
  void Drop(const Status& why) override;

 private:
  Status OnJoin(const worker::v1::ToRouter& message);

  const Welcome welcome_;
  CoreLoop& core_;
  const std::string address_;
  std::shared_ptr<Stream> stream_;
  std::string worker_id_;  // empty until Join; used only by the stream's callbacks
  std::atomic<bool> welcomed_{false};
};

}  // namespace baton::router
