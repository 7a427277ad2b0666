#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/cluster/request.h"
#include "common/rpc/duplex_stream.h"
#include "common/rpc/rpc_server.h"
#include "proto/worker.grpc.pb.h"

namespace baton {

// A router that decides nothing: it accepts workers, sends them the messages of a test, and records
// their messages. A wait of more than `limit`, or a message to a worker that has not joined,
// throws: the exception fails and ends the test before it uses a missing result. Thread-safe.
class FakeRouter final : private worker::v1::WorkerLink::CallbackService {
 public:
  // What one worker has reported about one (request, epoch).
  struct WorkerReports {
    std::map<int32_t, std::vector<worker::v1::Token>> samples;
    std::optional<worker::v1::Finished> finished;
    bool finished_with_token = false;  // the message with `finished` had a token of the request
    std::optional<worker::v1::Failed> failed;
    std::vector<worker::v1::Handoff> handoffs;

    bool ended() const { return finished.has_value() || failed.has_value(); }
    // The failure. When the request did not fail, fails the test and returns an empty message.
    worker::v1::Failed Failure() const;
    // A text for test messages that describes how the request ended.
    std::string Ending() const;
    // Whether the worker sends no more messages: the request has ended, or its hand-off failed or
    // was not needed.
    bool over() const;
    std::vector<TokenId> Tokens(int32_t sample) const;
  };

  explicit FakeRouter(Duration limit = std::chrono::minutes(1));
  ~FakeRouter() override;

  const std::string& address() const { return server_->address(); }
  // Waits until the worker has joined and sent a heartbeat. Returns its Join.
  worker::v1::Join AwaitJoin(const std::string& worker);
  void AwaitLeft(const std::string& worker);
  void Send(const std::string& worker, worker::v1::ToWorker message);
  // Closes the stream of a worker. The worker will dial again.
  void Drop(const std::string& worker,
            const Status& why = Status(StatusCode::kUnavailable, "dropped by the test"));

  // Waits until `done` is true for what `worker` has reported about the request, and returns that.
  WorkerReports Await(const std::string& worker,
                      uint64_t request,
                      uint32_t epoch,
                      const std::function<bool(const WorkerReports&)>& done);
  WorkerReports AwaitEnd(const std::string& worker, uint64_t request, uint32_t epoch = 1);
  WorkerReports Get(const std::string& worker, uint64_t request, uint32_t epoch = 1);
  worker::v1::Heartbeat LastHeartbeat(const std::string& worker);
  // Waits for a heartbeat for which `fits` is true.
  void AwaitHeartbeat(const std::string& worker,
                      const std::function<bool(const worker::v1::Heartbeat&)>& fits);
  bool Draining(const std::string& worker);

  // From now on every Join is answered with this error. With OK, workers are accepted again.
  void RefuseJoins(const Status& why);
  // `look` is called with every Join, on a gRPC thread, before the Join is answered.
  void OnJoin(std::function<void(const worker::v1::Join&)> look);

 private:
  using Stream = ServerStream<worker::v1::ToWorker, worker::v1::ToRouter>;
  struct Member {
    std::shared_ptr<Stream> stream;  // null when the worker has left
    worker::v1::Join join;
    worker::v1::Heartbeat heartbeat;
    bool draining = false;
    std::map<std::pair<uint64_t, uint32_t>, WorkerReports> heard;
  };

  grpc::ServerBidiReactor<worker::v1::ToRouter, worker::v1::ToWorker>* Open(
      grpc::CallbackServerContext* context) override;
  Status OnMessage(const std::shared_ptr<std::string>& name,
                   const std::shared_ptr<std::shared_ptr<Stream>>& stream,
                   const worker::v1::ToRouter& message);
  void AwaitLocked(std::unique_lock<std::mutex>& lock,
                   const std::string& what,
                   const std::function<bool()>& condition);

  const Duration limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Member> members_;
  Status refusal_;
  std::function<void(const worker::v1::Join&)> look_at_join_;
  std::unique_ptr<RpcServer> server_;
};

// The Dispatch that a router would send for the request.
worker::v1::Dispatch MakeDispatch(const Request& request, worker::v1::Dispatch::Kind kind);

}  // namespace baton
