#pragma once

#include <cstdint>
#include <vector>

#include "common/base/clock.h"

namespace baton {

// A connected TCP socket of this process.
struct OwnSocket {
  int fd = -1;
  uint16_t local_port = 0;
  uint16_t peer_port = 0;
};

// All connected TCP sockets of this process, found through /proc/self/fd.
std::vector<OwnSocket> OwnSockets();

// Waits for the socket that a listener in this process accepts for the connection of `client`.
// Returns -1 when there is none within the limit.
int AwaitAccepted(int client, Duration limit = std::chrono::seconds(10));

// Waits until the socket has TCP_NODELAY, which a listener sets only after it has accepted. Returns
// false when the socket does not have the option within the limit.
bool AwaitNoDelay(int fd, Duration limit = std::chrono::seconds(10));

// The number of TCP segments with data that the socket has received. 0 also where an emulator
// (QEMU's user mode) does not pass the count on.
uint32_t ReceivedSegments(int fd);

}  // namespace baton
