#include "router/links/worker_link_service.h"

#include <memory>
#include <utility>

#include "common/rpc/remote_client.h"

namespace baton::router {
namespace {

// A worker is dropped when more than this many messages wait to be sent to it. A batch of decisions
// is usually one message.
constexpr size_t kUnsentMessages = 4096;

}  // namespace

grpc::ServerBidiReactor<worker::v1::ToRouter, worker::v1::ToWorker>* WorkerLinkService::Open(
    grpc::CallbackServerContext* context) {
  auto link = std::make_shared<WorkerLinkServer>(welcome_, core_, ClientOf(*context)->address());
  StreamHandler<worker::v1::ToRouter> handler;
  handler.on_message = [link](const worker::v1::ToRouter& message) {
    return link->OnMessage(message);
  };
  handler.on_closed = [link](const Status& why) { link->OnClosed(why); };
  auto stream =
      WorkerLinkServer::Stream::Accept(context, std::move(handler), kUnsentMessages, proofs_);
  link->Attach(stream);
  return stream.get();
}

}  // namespace baton::router
