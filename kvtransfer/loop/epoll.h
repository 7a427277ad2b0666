#pragma once

#include <sys/epoll.h>

#include <cstdint>

#include "common/base/status.h"
#include "common/base/unique_fd.h"

// Wrappers of epoll(7) and eventfd(2). All errors are ResourceExhausted.
namespace baton {

StatusOr<UniqueFd> MakeEpoll();
// A non-blocking eventfd whose counter is 0.
StatusOr<UniqueFd> MakeEventFd();

// Lets `epoll` report `events` of `fd`. `operation`: EPOLL_CTL_ADD, or EPOLL_CTL_MOD for a
// descriptor that it watches already.
Status WatchFd(int epoll, int fd, uint32_t events = EPOLLIN, int operation = EPOLL_CTL_ADD);

}  // namespace baton
