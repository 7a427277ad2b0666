#include "common/group/rank_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace baton {
namespace {

constexpr size_t kMaxText = size_t{64} << 10;

Status SystemError(std::string_view call) {
  return MakeStatus(StatusCode::kInternal, "rank socket: {}: {}", call, std::strerror(errno));
}

Status Closed() {
  return Status(StatusCode::kUnavailable, "the process at the other end is gone");
}

// Waits until the socket can be read; false after `limit`.
StatusOr<bool> WaitReadable(int fd, Duration limit) {
  const SteadyClock clock;
  const Time deadline = clock.Now() + limit;
  while (true) {
    pollfd waiting{fd, POLLIN, 0};
    const double left = std::clamp(ToMillis(deadline - clock.Now()), 0.0, 1e9);
    const int ready = ::poll(&waiting, 1, static_cast<int>(left) + 1);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return SystemError("poll");
    if (clock.Now() >= deadline) return false;
  }
}

}  // namespace

StatusOr<std::pair<RankSocket, RankSocket>> RankSocket::Pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return SystemError("socketpair");
  }
  return std::pair(RankSocket(UniqueFd(ends[0])), RankSocket(UniqueFd(ends[1])));
}

Status RankSocket::Send(std::string_view text, int descriptor) {
  if (text.size() > kMaxText) {
    return InvalidArgument("rank socket: a message of {} bytes; at most {}", text.size(), kMaxText);
  }
  iovec part{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  while (::sendmsg(fd_.get(), &message, MSG_NOSIGNAL) < 0) {
    if (errno == EPIPE || errno == ECONNRESET) return Closed();
    if (errno != EINTR) return SystemError("sendmsg");
  }
  return OkStatus();
}

StatusOr<RankSocket::Message> RankSocket::Receive(Duration limit) {
  BATON_ASSIGN_OR_RETURN(const bool readable, WaitReadable(fd_.get(), limit));
  if (!readable) {
    return MakeStatus(
        StatusCode::kDeadlineExceeded, "no message within {:.1f} s", ToSeconds(limit));
  }
  Message result;
  result.text.resize(kMaxText);
  iovec part{result.text.data(), result.text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t bytes = 0;
  do {
    bytes = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
  } while (bytes < 0 && errno == EINTR);
  if (bytes == 0 || (bytes < 0 && errno == ECONNRESET)) return Closed();
  if (bytes < 0) return SystemError("recvmsg");
  result.text.resize(static_cast<size_t>(bytes));
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    result.descriptor.Reset(descriptor);
  }
  return result;
}

}  // namespace baton
