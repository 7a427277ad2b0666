#pragma once

#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/server_callback.h>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/peer_proof.h"
#include "common/base/status.h"
#include "common/rpc/remote_client.h"
#include "common/rpc/rpc_status.h"

namespace baton {

// The callbacks of a stream. They run on gRPC's threads, one at a time. They must not block, and
// may call Send, Flush and Close.
template <class In>
struct StreamHandler {
  // An error that this function returns closes the stream with that error.
  std::function<Status(In)> on_message;
  // Called exactly once, as the last call, with the reason why the stream ended (OK when the peer
  // ended it in order).
  std::function<void(const Status&)> on_closed;
};

// One end of a bidirectional stream. Messages are sent through a bounded queue, which never blocks
// the sender, and received by a handler. With PeerProofs, the two ends first prove to each other
// who they are, in the field `handshake` of the messages; meanwhile messages wait in the queue, and
// the handler receives nothing. `Base` is gRPC's client or server reactor. Public methods are
// thread-safe.
template <class Base, class Out, class In>
class DuplexStream : public Base {
 public:
  // Queues `message`. Returns false and drops the message when the stream has ended, or when
  // `capacity` messages already wait because the peer reads too slowly; the caller should then call
  // Close.
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

  // Ends this half in order: sends the queued messages and then the end of the stream. The
  // listening end finishes the call with `status`; the dialling end waits until the peer finishes
  // the call.
  void Flush(const Status& status = OkStatus()) { Leave(Phase::kFlushing, status); }

  // Ends the stream at once and drops the queued messages. on_closed is then called with `status`.
  // When the listening end closes, its dialler receives `status`, too.
  void Close(const Status& status) {
    if (Leave(Phase::kClosing, status) && kDials) Abort();
  }

  // Cancels the call without sending a status. For a peer that breaks the protocol.
  virtual void Abort() = 0;

  // Waits until on_closed has returned, gRPC does not use the stream any more, and the handler is
  // destroyed. False on time-out.
  bool AwaitClosed(Duration timeout) const {
    return closed_.wait_for(timeout) == std::future_status::ready;
  }

 protected:
  static constexpr bool kDials = std::is_same_v<Base, grpc::ClientBidiReactor<Out, In>>;

  DuplexStream(StreamHandler<In> handler, size_t capacity, std::shared_ptr<const PeerProofs> proofs)
      : handler_(std::move(handler)), capacity_(capacity), proofs_(std::move(proofs)) {
    if (proofs_ == nullptr) return;
    proof_ = proofs_->Make(kDials ? PeerSide::kDialler : PeerSide::kListener, Purpose());
    proving_ = true;
    if (kDials) handshake_.emplace().set_handshake(proof_->Begin());
  }

  void Begin(std::shared_ptr<DuplexStream> self) {
    self_ = std::move(self);
    this->StartRead(&incoming_);
  }

  // Starts the next write, if one is due.
  void Continue() {
    Action action;
    {
      std::lock_guard lock(mutex_);
      action = NextLocked();
    }
    Run(action);
  }

  // Closes the stream of a peer that is not proven yet.
  void RefusePeer(const Status& why) {
    {
      std::lock_guard lock(mutex_);
      if (!proving_ || phase_ == Phase::kClosing) return;
    }
    if (!kDials) proofs_->OnRefused(Purpose(), PeerName(), why);
    Close(why);
  }

  bool has_proofs() const { return proofs_ != nullptr; }
  // The address of the other end, for messages.
  virtual std::string PeerName() const = 0;
  // The other end has proven itself.
  virtual void OnProven() {}

  // Called when gRPC does not use the reactor any more.
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
    // The object may have been destroyed by now.
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
      if (phase == Phase::kClosing) {
        queue_.clear();
        handshake_.reset();
      }
      action = NextLocked();
    }
    Run(action);
    return true;
  }

  // The type of the dialler's messages names the protocol.
  static std::string_view Purpose() {
    return (kDials ? Out::descriptor() : In::descriptor())->name();
  }

  // Takes the next message of the handshake. A message of anything else is refused.
  void OnHandshake(const std::string& message) {
    const StatusOr<std::string> answer = proof_->OnMessage(message);
    if (!answer.ok()) return RefusePeer(answer.status());
    if (proof_->done()) OnProven();
    Action action;
    {
      std::lock_guard lock(mutex_);
      if (!answer->empty()) handshake_.emplace().set_handshake(*answer);
      proving_ = !proof_->done();
      action = NextLocked();
    }
    Run(action);
  }

  void OnMessage() {
    if (proof_ != nullptr && !proof_->done()) return OnHandshake(incoming_.handshake());
    Status status = proof_ == nullptr && !incoming_.handshake().empty()
                        ? Status(StatusCode::kUnauthenticated,
                                 "one end of the connection proves the cluster's secret, but the "
                                 "other has none; set security.cluster_secret_file of both")
                        : handler_.on_message(std::exchange(incoming_, In()));
    if (!status.ok()) Close(status);
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      OnMessage();
      this->StartRead(&incoming_);
      return;
    }
    Action action;
    {
      std::lock_guard lock(mutex_);
      phase_ = Phase::kClosing;
      reading_ended_ = true;
      queue_.clear();
      handshake_.reset();
      action = NextLocked();
    }
    Run(action);
  }

  void OnWriteDone(bool ok) override { WritingEnded(ok); }

  // Chooses the next operation of the writing half. At most one of them is in progress.
  Action NextLocked() {
    if (writing_) return Action::kNone;
    if (handshake_.has_value()) {
      outgoing_ = std::move(*handshake_);
      handshake_.reset();
      writing_ = true;
      return Action::kWrite;
    }
    if (proving_ && phase_ != Phase::kClosing && !queue_.empty()) return Action::kNone;
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
  const std::shared_ptr<const PeerProofs> proofs_;
  std::unique_ptr<PeerProof> proof_;  // used by the constructor and by reads, one at a time
  In incoming_;
  Out outgoing_;
  std::shared_ptr<DuplexStream> self_;

  mutable std::mutex mutex_;
  std::deque<Out> queue_;
  std::optional<Out> handshake_;  // to be sent before the queue
  bool proving_ = false;          // the handshake is not complete: the queue waits
  Phase phase_ = Phase::kOpen;
  bool writing_ = false;
  bool writes_ended_ = false;
  bool reading_ended_ = false;
  bool released_ = false;
  std::optional<Status> why_;

  std::promise<void> ended_;
  const std::shared_future<void> closed_ = ended_.get_future().share();
};

// The dialling end. `start(context, reactor)` starts the call, such as
// stub->async()->Link(context, reactor); it must own what it uses (capture the stub). The dialler
// must keep the stream until AwaitClosed has returned true. The stream holds the channel, which
// must not be destroyed on one of gRPC's threads: the destructor of a process's last channel waits
// for these threads.
template <class Out, class In>
class ClientStream final : public DuplexStream<grpc::ClientBidiReactor<Out, In>, Out, In> {
  using Stream = DuplexStream<grpc::ClientBidiReactor<Out, In>, Out, In>;

 public:
  using Start = std::function<void(grpc::ClientContext*, grpc::ClientBidiReactor<Out, In>*)>;

  // A stream that is not dialled yet. `capacity`: the most messages that may wait to be written.
  // `proofs`: null when the ends need not prove who they are.
  static std::shared_ptr<ClientStream> Create(Start start,
                                              StreamHandler<In> handler,
                                              size_t capacity,
                                              std::shared_ptr<const PeerProofs> proofs = nullptr) {
    return std::shared_ptr<ClientStream>(
        new ClientStream(std::move(start), std::move(handler), capacity, std::move(proofs)));
  }

  // Starts the call. To be called once, and before any Send. The handler may be called from now on.
  static void Dial(const std::shared_ptr<ClientStream>& stream) {
    stream->start_(&stream->context_, stream.get());
    // The hold keeps the call alive between reactions, because any thread may start a write.
    stream->AddHold();
    stream->Begin(stream);
    stream->StartCall();
    if (stream->has_proofs()) stream->Continue();
  }

  void Abort() override { context_.TryCancel(); }

 private:
  ClientStream(Start start,
               StreamHandler<In> handler,
               size_t capacity,
               std::shared_ptr<const PeerProofs> proofs)
      : Stream(std::move(handler), capacity, std::move(proofs)), start_(std::move(start)) {}

  std::string PeerName() const override { return context_.peer(); }

  void OnWritesDoneDone(bool ok) override { this->WritingEnded(ok); }
  void OnDone(const grpc::Status& status) override { this->Ended(FromGrpc(status)); }

  grpc::ClientContext context_;
  const Start start_;
};

// The listening end. The service's method makes it and returns it as the reactor. It lives at least
// until the stream has ended, even when its owner drops it earlier. With `proofs`, a peer that has
// not proven itself after the limit is refused.
template <class Out, class In>
class ServerStream final : public DuplexStream<grpc::ServerBidiReactor<In, Out>, Out, In> {
  using Stream = DuplexStream<grpc::ServerBidiReactor<In, Out>, Out, In>;

 public:
  static constexpr Duration kProofLimit = std::chrono::seconds(10);

  static std::shared_ptr<ServerStream> Accept(grpc::CallbackServerContext* context,
                                              StreamHandler<In> handler,
                                              size_t capacity,
                                              std::shared_ptr<const PeerProofs> proofs = nullptr,
                                              Duration proof_limit = kProofLimit) {
    std::shared_ptr<ServerStream> stream(
        new ServerStream(context, std::move(handler), capacity, std::move(proofs)));
    stream->Begin(stream);
    if (stream->has_proofs()) {
      stream->proof_limit_.Set(
          std::chrono::system_clock::now() + proof_limit,
          [weak = std::weak_ptr<ServerStream>(stream), proof_limit](bool expired) {
            const auto self = weak.lock();
            if (expired && self != nullptr) self->OnProofLimit(proof_limit);
          });
    }
    return stream;
  }

  void Abort() override { context_->TryCancel(); }

 private:
  ServerStream(grpc::CallbackServerContext* context,
               StreamHandler<In> handler,
               size_t capacity,
               std::shared_ptr<const PeerProofs> proofs)
      : Stream(std::move(handler), capacity, std::move(proofs)),
        context_(context),
        client_(ClientOf(*context)) {
    if (!this->has_proofs()) client_->SetProven();
  }

  std::string PeerName() const override { return client_->address(); }
  void OnProven() override { client_->SetProven(); }
  void OnProofLimit(Duration limit) {
    this->RefusePeer(MakeStatus(StatusCode::kUnauthenticated,
                                "the peer did not prove that it knows the cluster's secret within "
                                "{} s",
                                ToSeconds(limit)));
  }

  void OnDone() override {
    if (this->has_proofs()) proof_limit_.Cancel();
    this->Ended(context_->IsCancelled()
                    ? Status(StatusCode::kUnavailable, "the peer cancelled the stream or was lost")
                    : OkStatus());
  }

  grpc::CallbackServerContext* const context_;
  const std::shared_ptr<RemoteClient> client_;
  grpc::Alarm proof_limit_;
};

}  // namespace baton
