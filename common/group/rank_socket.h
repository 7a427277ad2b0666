#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace baton {

// One end of the connection between the leader of a group and one follower on the same host, over
// which the group starts. Either end notices at once when the other process ends. Not thread-safe.
class RankSocket final {
 public:
  struct Message {
    std::string text;
    UniqueFd descriptor;  // may be absent
  };

  // A connected pair. The first end is closed in programs that this process starts; the second end
  // is to be passed to the follower.
  static StatusOr<std::pair<RankSocket, RankSocket>> Pair();
  explicit RankSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  // The process at the other end; Unavailable when the kernel does not name it.
  StatusOr<pid_t> peer() const;
  // Sends `text`, at most 64 KiB, with `descriptor` when it is not -1. Unavailable when the other
  // end is closed.
  Status Send(std::string_view text, int descriptor = -1);
  // Errors: DeadlineExceeded after `limit`; Unavailable when the other end is closed.
  StatusOr<Message> Receive(Duration limit);

 private:
  UniqueFd fd_;
};

}  // namespace baton
