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

// All of them, found through /proc/self/fd.
std::vector<OwnSocket> OwnSockets();

// The socket that a listener in this process accepted for the connection of `client`. Waits until
// it is there; -1 when it does not come within the limit.
int AwaitAccepted(int client, Duration limit = std::chrono::seconds(10));

// Whether the socket sends without delay. Waits until it does: a listener sets that after it has
// accepted.
bool AwaitNoDelay(int fd, Duration limit = std::chrono::seconds(10));

// TCP segments with data that the socket has received.
uint32_t ReceivedSegments(int fd);

}  // namespace baton
