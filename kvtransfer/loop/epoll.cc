#include "kvtransfer/loop/epoll.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>

namespace baton {

StatusOr<UniqueFd> MakeEpoll() {
  UniqueFd fd(::epoll_create1(EPOLL_CLOEXEC));
  if (fd.valid()) return fd;
  return MakeStatus(StatusCode::kResourceExhausted, "epoll_create1: {}", std::strerror(errno));
}

StatusOr<UniqueFd> MakeEventFd() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (fd.valid()) return fd;
  return MakeStatus(StatusCode::kResourceExhausted, "eventfd: {}", std::strerror(errno));
}

Status WatchFd(int epoll, int fd, uint32_t events, int operation) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll, operation, fd, &event) == 0) return OkStatus();
  return MakeStatus(StatusCode::kResourceExhausted, "epoll_ctl: {}", std::strerror(errno));
}

}  // namespace baton
