#include "kvtransfer/cuda_ipc/ipc_socket.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace baton {
namespace {

// The send buffer must hold a whole frame. The kernel may grant less.
constexpr int kSocketBufferBytes = 1 << 20;

}  // namespace

IpcSocket::IpcSocket(UniqueFd socket)
    : socket_(std::move(socket)), buffer_(kMaxSidebandFrameBytes + 1) {
  (void)::setsockopt(
      socket_.get(), SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof(kSocketBufferBytes));
}

void IpcSocket::Queue(const SidebandFrame& frame) {
  out_.push_back(EncodeSidebandFrame(frame));
}

Status IpcSocket::Flush() {
  while (!out_.empty()) {
    const std::string& frame = out_.front();
    const ssize_t sent =
        ::send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return OkStatus();
      if (errno == EPIPE || errno == ECONNRESET) {
        out_.clear();  // Receive reports the end after the frames that the peer sent before it
        return OkStatus();
      }
      return MakeStatus(StatusCode::kUnavailable, "send: {}", std::strerror(errno));
    }
    out_.pop_front();
  }
  return OkStatus();
}

StatusOr<std::optional<SidebandFrame>> IpcSocket::Receive() {
  ssize_t got = 0;
  // A peer that closes while it has unread frames leaves one ECONNRESET here, ahead of the frames
  // that it sent before, and the next call reads those.
  do {
    got = ::recv(socket_.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
  } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<SidebandFrame>();
    return MakeStatus(StatusCode::kUnavailable, "receive: {}", std::strerror(errno));
  }
  if (got == 0) return MakeStatus(StatusCode::kOutOfRange, "closed by the peer");
  BATON_ASSIGN_OR_RETURN(SidebandFrame frame,
                         ParseSidebandFrame(std::span(buffer_).first(static_cast<size_t>(got))));
  return std::optional<SidebandFrame>(std::move(frame));
}

}  // namespace baton
