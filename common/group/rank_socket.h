#pragma once

#include <sys/types.h>

#include <string_view>
#include <utility>

#include "common/base/clock.h"
#include "common/base/local_socket.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/group/rank_link.h"

namespace baton {

// One end of the connection between the leader of a group and one follower on the same host, over
// which the group starts. Either end notices at once when the other process ends. Not thread-safe.
class RankSocket final : public RankLink {
 public:
  // A connected pair. The first end is closed in programs that this process starts; the second end
  // is to be passed to the follower.
  static StatusOr<std::pair<RankSocket, RankSocket>> Pair();
  explicit RankSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  // The process at the other end. Errors: as LocalPeer.
  StatusOr<pid_t> peer() const { return LocalPeer(fd_); }
  using RankLink::Send;
  Status Send(std::string_view text, int descriptor) override;
  StatusOr<Message> Receive(Duration limit) override;

 private:
  UniqueFd fd_;
};

}  // namespace baton
