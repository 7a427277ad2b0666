#include "common/worker/kv_control_client.h"

#include <utility>
#include <variant>

#include "common/log/log.h"

namespace baton {
namespace {

constexpr size_t kQueuedFrames = 65536;
constexpr Duration kHelloLimit = std::chrono::seconds(5);

const Logger kLog("prefill");

}  // namespace

// One stream. Its callbacks run on gRPC's threads, one at a time. The callbacks use `greeted`; the
// worker's thread uses `peer`, `settled` and `next`.
struct DecodePeers::Connection {
  Peer peer;
  Time dialled{};
  bool settled = false;      // HELLO has arrived
  std::optional<Peer> next;  // to be dialled when this stream has ended
  std::shared_ptr<Stream> stream;
  std::unique_ptr<FrameStream<Stream>> out;
  bool greeted = false;
};

DecodePeers::DecodePeers(KvSender& sender,
                         WorkerLoop& loop,
                         const Clock& clock,
                         const ConnectionLimits& limits,
                         OnSettled on_settled)
    : sender_(sender),
      loop_(loop),
      clock_(clock),
      limits_(limits),
      on_settled_(std::move(on_settled)) {}

DecodePeers::~DecodePeers() {
  Stop();
}

bool DecodePeers::Connect(const Peer& peer) {
  const auto found = connections_.find(peer.id);
  if (found == connections_.end()) {
    Dial(peer);
    return false;
  }
  Connection& connection = *found->second;
  const bool same =
      connection.peer.boot == peer.boot && connection.peer.kv_address == peer.kv_address;
  if (same && !connection.next.has_value()) return connection.settled;
  // The peer was restarted: its old stream must end before the new process is dialled.
  connection.next = peer;
  connection.stream->Close(Status(StatusCode::kUnavailable, "the peer was restarted"));
  return false;
}

void DecodePeers::Dial(const Peer& peer) {
  auto connection = std::make_shared<Connection>();
  connection->peer = peer;
  connection->dialled = clock_.Now();
  StreamHandler<kv::v1::Frame> handler;
  handler.on_message = [this, connection, worker = peer.id](const kv::v1::Frame& frame) {
    StatusOr<Envelope> envelope = DecodeEnvelope(frame.envelope());
    if (!envelope.ok()) return envelope.status();
    if (connection->greeted) return sender_.OnMessage(worker, *std::move(envelope));
    const Hello* hello = std::get_if<Hello>(&envelope->message);
    if (hello == nullptr || hello->worker != worker) {
      return InvalidArgument("the first message is not the HELLO of worker '{}'", worker);
    }
    BATON_RETURN_IF_ERROR(sender_.AddPeer(worker, connection->out.get(), *hello));
    connection->greeted = true;
    loop_.PostInternal([this, connection] { OnHello(connection); });
    return OkStatus();
  };
  handler.on_closed = [this, connection](const Status& status) {
    loop_.PostInternal([this, connection, status] { OnClosed(connection, status); });
  };
  std::shared_ptr<kv::v1::KvControl::Stub> stub =
      kv::v1::KvControl::NewStub(MakeChannel(peer.kv_address, limits_));
  connections_[peer.id] = connection;
  connection->stream = Stream::Create(
      [stub](grpc::ClientContext* call,
             grpc::ClientBidiReactor<kv::v1::Frame, kv::v1::Frame>* end) {
        stub->async()->Control(call, end);
      },
      std::move(handler),
      kQueuedFrames,
      limits_.proofs);
  connection->out = std::make_unique<FrameStream<Stream>>(connection->stream);
  Stream::Dial(connection->stream);
  Envelope greeting;
  greeting.message = sender_.hello();
  connection->stream->Send(ToFrame(greeting));
}

void DecodePeers::OnHello(const std::shared_ptr<Connection>& connection) {
  connection->settled = true;
  kLog.Info("KvControl stream to decode worker {} at {} is open",
            connection->peer.id,
            connection->peer.kv_address);
  on_settled_(connection->peer.id, OkStatus());
}

void DecodePeers::OnClosed(const std::shared_ptr<Connection>& connection, const Status& status) {
  // gRPC's thread may not have returned from the handler yet.
  closing_.Add(fmt::format("decode worker {}", connection->peer.id), connection->stream);
  const Peer peer = connection->peer;
  const std::optional<Peer> next = connection->next;
  // `greeted` is safe to read: on_closed, which posted this, was the last callback.
  if (connection->greeted) sender_.RemovePeer(peer.id);
  connections_.erase(peer.id);
  kLog.Warning("KvControl stream to decode worker {} at {} ended: {}",
               peer.id,
               peer.kv_address,
               Message(status));
  if (next.has_value()) {
    Dial(*next);
  } else if (!connection->settled) {
    on_settled_(peer.id,
                Status(StatusCode::kUnavailable,
                       fmt::format("decode worker '{}' at {} cannot be reached: {}",
                                   peer.id,
                                   peer.kv_address,
                                   Message(status))));
  }
}

void DecodePeers::OnTick(Time now) {
  closing_.Collect();
  for (auto& [worker, connection] : connections_) {
    if (!connection->settled && now - connection->dialled > kHelloLimit) {
      connection->stream->Close(Status(StatusCode::kDeadlineExceeded, "no HELLO arrived in time"));
    }
  }
}

void DecodePeers::Stop() {
  for (auto& [worker, connection] : connections_) {
    connection->stream->Close(Status(StatusCode::kUnavailable, "the worker is shutting down"));
    closing_.Add(fmt::format("decode worker {}", worker), connection->stream);
  }
  closing_.AwaitAll();
  // Only now, because a callback may add its peer until its stream has ended.
  for (auto& [worker, connection] : connections_) sender_.RemovePeer(worker);
  connections_.clear();
}

}  // namespace baton
