#pragma once

#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/server_callback.h>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/rpc/rpc_status.h"

namespace baton {

// What a stream tells its user, on gRPC's threads, one call at a time. The functions must not block
// and may call Send, Flush and Close.
template <class In>
struct StreamHandler {
  // An error closes the stream with it.
  std::function<Status(In)> on_message;
  // Exactly once, the last call: why the stream ended (OK when the other side ended it in order).
  std::function<void(const Status&)> on_closed;
};

// One end of a bidirectional stream: messages go out through a bounded queue without ever blocking
// the sender, and come in through a handler. `Base` is gRPC's client or server reactor. Public
// methods are thread-safe.
template <class Base, class Out, class In>
class DuplexStream : public Base {
 public:
  // Queues `message`. False when the stream is over, or when `capacity` messages already wait (the
  // peer reads too slowly): then the message is dropped, and the caller should Close.
  bool Send(Out message) {
    Action action;
    {
      std::lock_guard lock(mutex_);
      if (phase_ != Phase::kOpen || queue_.size() >= capacity_) return false;
      queue_.push_back(std::move(message));
      action = NextLocked();
    }
    Run(action);
    return true;
  }

  // Ends our half in order: queued messages still go out, then the peer sees the end. The listening
  // end finishes the call with `status`; the dialling end waits for the peer to finish it.
  void Flush(const Status& status = OkStatus()) { Leave(Phase::kFlushing, status); }

  // Ends the stream at once, without the queued messages. on_closed follows with `status`, which
  // the dialler of a listening end gets to see, too.
  void Close(const Status& status) {
    if (Leave(Phase::kClosing, status) && kDials) Abort();
  }

  // Breaks the connection's call without a word: for a peer that does not behave.
  virtual void Abort() = 0;

  // Waits until on_closed has returned and gRPC has let go of the stream and of its handler. False
  // on time-out.
  bool AwaitClosed(Duration timeout) const {
    return closed_.wait_for(timeout) == std::future_status::ready;
  }

 protected:
  static constexpr bool kDials = std::is_same_v<Base, grpc::ClientBidiReactor<Out, In>>;

  DuplexStream(StreamHandler<In> handler, size_t capacity)
      : handler_(std::move(handler)), capacity_(capacity) {}

  void Begin(std::shared_ptr<DuplexStream> self) {
    self_ = std::move(self);
    this->StartRead(&incoming_);
  }

  // gRPC is done with the reactor.
  void Ended(const Status& transport_status) {
    {
      std::lock_guard lock(mutex_);
      phase_ = Phase::kClosing;
      if (!why_.has_value()) why_ = transport_status;
    }
    handler_.on_closed(*why_);
    handler_ = {};
    std::promise<void> ended = std::move(ended_);
    BATON_CHECK(!kDials || self_.use_count() > 1, "a dialler dropped a stream that had not ended");
    std::exchange(self_, nullptr).reset();
    // From here on the object may be gone.
    ended.set_value();
  }

  void WritingEnded(bool ok) {
    Action action;
    {
      std::lock_guard lock(mutex_);
      writing_ = false;
      if (!ok) queue_.clear();
      action = NextLocked();
    }
    Run(action);
  }

 private:
  enum class Phase { kOpen, kFlushing, kClosing };
  enum class Action { kNone, kWrite, kEndWrites, kRelease };

  bool Leave(Phase phase, const Status& status) {
    Action action;
    {
      std::lock_guard lock(mutex_);
      if (phase_ >= phase) return false;
      phase_ = phase;
      if (!why_.has_value() && (!status.ok() || phase == Phase::kClosing)) why_ = status;
      if (phase == Phase::kClosing) queue_.clear();
      action = NextLocked();
    }
    Run(action);
    return true;
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      const Status status = handler_.on_message(std::exchange(incoming_, In()));
      if (!status.ok()) Close(status);
      this->StartRead(&incoming_);
      return;
    }
    Action action;
    {
      std::lock_guard lock(mutex_);
      phase_ = Phase::kClosing;
      reading_ended_ = true;
      queue_.clear();
      action = NextLocked();
    }
    Run(action);
  }

  void OnWriteDone(bool ok) override { WritingEnded(ok); }

  // At most one operation of the writing half is under way; what comes next is decided here.
  Action NextLocked() {
    if (writing_) return Action::kNone;
    if (!queue_.empty()) {
      outgoing_ = std::move(queue_.front());
      queue_.pop_front();
      writing_ = true;
      return Action::kWrite;
    }
    if (phase_ != Phase::kOpen && !writes_ended_ && !(kDials && phase_ == Phase::kClosing)) {
      writes_ended_ = true;
      writing_ = kDials;
      return Action::kEndWrites;
    }
    if (kDials && reading_ended_ && !released_) {
      released_ = true;
      return Action::kRelease;
    }
    return Action::kNone;
  }

  void Run(Action action) {
    if (action == Action::kNone) return;
    if (action == Action::kWrite) {
      this->StartWrite(&outgoing_);
    } else if constexpr (kDials) {
      if (action == Action::kEndWrites) {
        this->StartWritesDone();
      } else {
        this->RemoveHold();
      }
    } else {
      this->Finish(ToGrpc(FinalStatus()));
    }
  }

  Status FinalStatus() const {
    std::lock_guard lock(mutex_);
    return why_.value_or(OkStatus());
  }

  StreamHandler<In> handler_;
  const size_t capacity_;
  In incoming_;
  Out outgoing_;
  std::shared_ptr<DuplexStream> self_;

  mutable std::mutex mutex_;
  std::deque<Out> queue_;
  Phase phase_ = Phase::kOpen;
  bool writing_ = false;
  bool writes_ended_ = false;
  bool reading_ended_ = false;
  bool released_ = false;
  std::optional<Status> why_;

  std::promise<void> ended_;
  const std::shared_future<void> closed_ = ended_.get_future().share();
};

// The dialling end. `start(context, reactor)` is e.g. stub->async()->Link(context, reactor); it
// holds what it uses (capture the stub). Whoever dials keeps the stream until AwaitClosed has
// returned true: the stream holds the channel, which must not be dropped on one of gRPC's own
// threads, since the end of a process's last channel waits for them.
template <class Out, class In>
class ClientStream final : public DuplexStream<grpc::ClientBidiReactor<Out, In>, Out, In> {
  using Stream = DuplexStream<grpc::ClientBidiReactor<Out, In>, Out, In>;

 public:
  using Start = std::function<void(grpc::ClientContext*, grpc::ClientBidiReactor<Out, In>*)>;

  // A stream that has not been dialled. `capacity`: messages that may wait to be written.
  static std::shared_ptr<ClientStream> Create(Start start,
                                              StreamHandler<In> handler,
                                              size_t capacity) {
    return std::shared_ptr<ClientStream>(
        new ClientStream(std::move(start), std::move(handler), capacity));
  }

  // Dials, once. The handler may be called from now on; nothing may be sent before.
  static void Dial(const std::shared_ptr<ClientStream>& stream) {
    stream->start_(&stream->context_, stream.get());
    // Writes come from any thread, so the call must not end between two reactions.
    stream->AddHold();
    stream->Begin(stream);
    stream->StartCall();
  }

  void Abort() override { context_.TryCancel(); }

 private:
  ClientStream(Start start, StreamHandler<In> handler, size_t capacity)
      : Stream(std::move(handler), capacity), start_(std::move(start)) {}

  void OnWritesDoneDone(bool ok) override { this->WritingEnded(ok); }
  void OnDone(const grpc::Status& status) override { this->Ended(FromGrpc(status)); }

  grpc::ClientContext context_;
  const Start start_;
};

// The listening end, made in the service's method and returned from there as the reactor. Lives
// until the stream has ended, whoever drops it first.
template <class Out, class In>
class ServerStream final : public DuplexStream<grpc::ServerBidiReactor<In, Out>, Out, In> {
  using Stream = DuplexStream<grpc::ServerBidiReactor<In, Out>, Out, In>;

 public:
  static std::shared_ptr<ServerStream> Accept(grpc::CallbackServerContext* context,
                                              StreamHandler<In> handler,
                                              size_t capacity) {
    std::shared_ptr<ServerStream> stream(new ServerStream(context, std::move(handler), capacity));
    stream->Begin(stream);
    return stream;
  }

  void Abort() override { context_->TryCancel(); }

 private:
  ServerStream(grpc::CallbackServerContext* context, StreamHandler<In> handler, size_t capacity)
      : Stream(std::move(handler), capacity), context_(context) {}

  void OnDone() override {
    this->Ended(context_->IsCancelled()
                    ? Status(StatusCode::kUnavailable, "the peer broke the stream off")
                    : OkStatus());
  }

  grpc::CallbackServerContext* const context_;
};

}  // namespace baton
