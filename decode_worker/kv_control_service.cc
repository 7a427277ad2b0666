#include "decode_worker/kv_control_service.h"

#include <utility>
#include <variant>

#include "common/log/log.h"

namespace baton {
namespace {

constexpr size_t kQueuedFrames = 65536;

const Logger kLog("decode");

}  // namespace

// One stream. Its HELLO sets `worker`. Used only in the stream's callbacks, one at a time.
struct KvControlService::Connection {
  WorkerId worker;
  std::shared_ptr<Stream> stream;
  std::unique_ptr<FrameStream<Stream>> out;
};

grpc::ServerBidiReactor<kv::v1::Frame, kv::v1::Frame>* KvControlService::Control(
    grpc::CallbackServerContext* context) {
  auto connection = std::make_shared<Connection>();
  StreamHandler<kv::v1::Frame> handler;
  handler.on_message = [this, connection](const kv::v1::Frame& frame) {
    return OnFrame(connection, frame);
  };
  handler.on_closed = [this, connection](const Status& status) { OnClosed(connection, status); };
  // gRPC makes no callback before this method has returned the reactor.
  connection->stream = Stream::Accept(context, std::move(handler), kQueuedFrames, proofs_);
  connection->out = std::make_unique<FrameStream<Stream>>(connection->stream);
  return connection->stream.get();
}

Status KvControlService::OnFrame(const std::shared_ptr<Connection>& connection,
                                 const kv::v1::Frame& frame) {
  BATON_ASSIGN_OR_RETURN(Envelope envelope, DecodeEnvelope(frame.envelope()));
  if (!connection->worker.value().empty()) {
    return receiver_.OnMessage(connection->worker, std::move(envelope));
  }
  const Hello* hello = std::get_if<Hello>(&envelope.message);
  if (hello == nullptr) {
    return InvalidArgument("the first message is {}; it must be HELLO", Name(envelope.message));
  }
  return OnHello(connection, *hello);
}

Status KvControlService::OnHello(const std::shared_ptr<Connection>& connection,
                                 const Hello& hello) {
  if (hello.worker.value().empty()) return InvalidArgument("HELLO has no worker id");
  {
    std::lock_guard lock(mutex_);
    BATON_RETURN_IF_ERROR(receiver_.AddPeer(hello.worker, connection->out.get(), hello));
    std::shared_ptr<Connection>& current = peers_[hello.worker];
    if (current != nullptr) {
      current->stream->Close(
          MakeStatus(StatusCode::kAborted, "worker '{}' opened another stream", hello.worker));
    }
    current = connection;
    connection->worker = hello.worker;
  }
  kLog.Info("prefill worker {} opened a KvControl stream", hello.worker);
  Envelope answer;
  answer.message = receiver_.hello();
  return connection->out->Send(answer);
}

void KvControlService::OnClosed(const std::shared_ptr<Connection>& connection,
                                const Status& status) {
  if (connection->worker.value().empty()) {
    kLog.Warning("a KvControl stream ended before its HELLO was accepted: {}", Message(status));
    return;
  }
  kLog.Info("KvControl stream of prefill worker {} ended: {}", connection->worker, Message(status));
  std::lock_guard lock(mutex_);
  const auto found = peers_.find(connection->worker);
  if (found == peers_.end() || found->second != connection) return;
  receiver_.RemovePeer(connection->worker);
  peers_.erase(found);
}

}  // namespace baton
