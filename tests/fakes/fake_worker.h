#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/cluster/request.h"
#include "common/model/model_identity.h"
#include "common/rpc/duplex_stream.h"
#include "proto/worker.grpc.pb.h"

namespace baton {

// A worker that computes nothing: it joins a router, records the router's messages, and sends the
// messages of a test. Thread-safe.
class FakeWorker final {
 public:
  struct Options {
    std::string router;  // address of the router's port for workers
    std::string id = "worker";
    bool prefill = false;
    bool decode = true;
    int32_t context_length = 1 << 20;
    int32_t vocabulary = 256;
    int32_t blocks = 1 << 20;  // number of blocks of 16 tokens
    ModelIdentity model;       // must equal the router's model, or the router refuses the worker
    uint64_t hash_secret = 0;
    uint32_t version = worker::v1::PROTOCOL_VERSION;
    std::shared_ptr<const PeerProofs> proofs = nullptr;  // null: the worker has no secret
  };

  // Returns when the router has accepted or refused the worker.
  explicit FakeWorker(const Options& options);
  ~FakeWorker() { Leave(); }

  void Leave();
  // Waits for the dispatch with this number, counted from 0.
  worker::v1::Dispatch AwaitDispatch(size_t number = 0);
  // How many dispatches have arrived.
  size_t dispatches();
  // Waits for a cancel of the dispatch's request or, with `sample`, of this sample alone.
  worker::v1::Cancel AwaitCancel(const worker::v1::Dispatch& dispatch, int32_t sample = kAll);
  bool Cancelled(const worker::v1::Dispatch& dispatch, int32_t sample = kAll);
  worker::v1::DrainCommand AwaitDrain();
  // How often the router had the prefix cache emptied.
  int caches_cleared();
  // Whether the router has accepted the worker, and has not closed its stream.
  bool is_member();
  // Waits for the status with which the router refuses the worker.
  Status AwaitRefusal();

  // Sends `text`, one token for each byte, as tokens of one sample from index `first` on, in one
  // message. `top` is the number of alternatives that are sent with each token.
  void Say(const worker::v1::Dispatch& dispatch,
           int32_t sample,
           int32_t first,
           const std::string& text,
           FinishReason finish = FinishReason::kNone,
           int32_t top = 0);
  void Finish(const worker::v1::Dispatch& dispatch);
  void Send(worker::v1::ToRouter message) { stream_->Send(std::move(message)); }

  static constexpr int32_t kAll = -1;

 private:
  using Stream = ClientStream<worker::v1::ToRouter, worker::v1::ToWorker>;

  void OnMessage(const worker::v1::ToWorker& message);
  void Await(const std::string& what, const std::function<bool()>& condition);
  // Null while no such cancel has arrived.
  const worker::v1::Cancel* FindCancel(const worker::v1::Dispatch& dispatch, int32_t sample) const;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool welcome_ = false;
  std::optional<Status> closed_;
  int cleared_ = 0;
  std::optional<worker::v1::DrainCommand> drain_;
  std::vector<worker::v1::Dispatch> dispatches_;
  std::vector<worker::v1::Cancel> cancels_;
  std::shared_ptr<Stream> stream_;
};

}  // namespace baton
