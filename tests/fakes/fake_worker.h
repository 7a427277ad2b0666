#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/engine/request.h"
#include "common/model/model_identity.h"
#include "common/rpc/duplex_stream.h"
#include "proto/worker.grpc.pb.h"

namespace baton {

// A worker that computes nothing: joins a router, writes down what it is told, says what a test
// wants. Thread-safe.
class FakeWorker final {
 public:
  struct Options {
    std::string router;  // address of its port for workers
    std::string id = "worker";
    bool prefill = false;
    bool decode = true;
    int32_t context_length = 1 << 20;
    int32_t vocabulary = 256;
    int32_t blocks = 1 << 20;  // of 16 tokens
    ModelIdentity model;       // the router's own, for one that is to be let in
    uint64_t hash_secret = 0;
    uint32_t version = worker::v1::PROTOCOL_VERSION;
  };

  // Returns when the router has said welcome, or refused.
  explicit FakeWorker(const Options& options);
  ~FakeWorker() { Leave(); }

  void Leave();
  // The `number`-th dispatch, from 0.
  worker::v1::Dispatch AwaitDispatch(size_t number = 0);
  // A cancel of that dispatch's request; with `sample`, of that sample alone.
  worker::v1::Cancel AwaitCancel(const worker::v1::Dispatch& dispatch, int32_t sample = kAll);
  bool Cancelled(const worker::v1::Dispatch& dispatch, int32_t sample = kAll);
  worker::v1::DrainCommand AwaitDrain();
  // Why the router did not let it in.
  Status AwaitRefusal();

  // Says `text`, a token a byte, of one sample, from index `first` on, in one message. `top`: so
  // many alternatives go with each token.
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
  // Null while there is none.
  const worker::v1::Cancel* FindCancel(const worker::v1::Dispatch& dispatch, int32_t sample) const;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool welcome_ = false;
  std::optional<Status> closed_;
  std::optional<worker::v1::DrainCommand> drain_;
  std::vector<worker::v1::Dispatch> dispatches_;
  std::vector<worker::v1::Cancel> cancels_;
  std::shared_ptr<Stream> stream_;
};

}  // namespace baton
