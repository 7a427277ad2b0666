#include "tests/conformance/socket_control.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "common/base/thread.h"
#include "kvtransfer/messages/codec.h"

namespace baton {
namespace {

bool ReceiveAll(int fd, void* to, size_t size) {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = ::recv(fd, at, size, MSG_WAITALL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

SocketControl::~SocketControl() {
  ::shutdown(socket_.get(), SHUT_RDWR);
}

Status SocketControl::Send(const Envelope& envelope) {
  const std::string body = EncodeEnvelope(envelope);
  const auto size = static_cast<uint32_t>(body.size());
  const std::string frame = std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + body;
  std::lock_guard lock(mutex_);
  // A full socket means that the peer is stopped: the message is lost, as on a real stream.
  const ssize_t sent =
      ::send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(frame.size())) return OkStatus();
  return MakeStatus(StatusCode::kUnavailable, "the control socket is full or closed");
}

StatusOr<Envelope> SocketControl::Receive() {
  uint32_t size = 0;
  std::string body;
  const Status gone = MakeStatus(StatusCode::kUnavailable, "the peer is gone");
  if (!ReceiveAll(socket_.get(), &size, sizeof(size))) return gone;
  body.resize(size);
  if (!ReceiveAll(socket_.get(), body.data(), size)) return gone;
  return DecodeEnvelope(body);
}

void SocketControl::Start(std::function<void(Envelope)> on_message, std::function<void()> on_end) {
  thread_ = StartThread("kv-control", [this, on_message, on_end](const std::stop_token&) {
    while (true) {
      StatusOr<Envelope> envelope = Receive();
      if (!envelope.ok()) break;
      on_message(*std::move(envelope));
    }
    on_end();
  });
}

}  // namespace baton
