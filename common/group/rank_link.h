#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace baton {

// One end of the connection between the leader of a group and one follower, over which the group
// starts.
class RankLink {
 public:
  struct Message {
    std::string text;
    UniqueFd descriptor;  // may be absent; always is when the ranks are on different hosts
  };

  virtual ~RankLink() = default;
  // Sends `text`, at most 64 KiB, with `descriptor` when it is not -1. Unavailable when the other
  // end is closed.
  virtual Status Send(std::string_view text, int descriptor) = 0;
  Status Send(std::string_view text) { return Send(text, -1); }
  // Errors: DeadlineExceeded after `limit`; Unavailable when the other end is closed.
  virtual StatusOr<Message> Receive(Duration limit) = 0;
};

// The time from `waited` until a wait for another rank is told the next time: after 10 s, then each
// 30 s.
Duration UntilWaitIsTold(Duration waited);

// As link.Receive. While it waits, it calls `tell` with the time that it has waited.
StatusOr<RankLink::Message> ReceiveAndTell(RankLink& link,
                                           Duration limit,
                                           const std::function<void(Duration waited)>& tell);

}  // namespace baton
