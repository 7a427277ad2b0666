#pragma once

#include <sys/epoll.h>

#include <cstdint>

#include "common/base/status.h"
#include "common/base/unique_fd.h"

// What threads wait with (epoll(7), eventfd(2)). Errors: ResourceExhausted.
namespace baton {

StatusOr<UniqueFd> MakeEpoll();
// Non-blocking, at zero.
StatusOr<UniqueFd> MakeEventFd();

// Has `epoll` tell of `events` of `fd`; `operation`: EPOLL_CTL_ADD, or EPOLL_CTL_MOD for one that
// it watches already.
Status WatchFd(int epoll, int fd, uint32_t events = EPOLLIN, int operation = EPOLL_CTL_ADD);

}  // namespace baton
