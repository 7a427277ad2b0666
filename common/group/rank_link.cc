#include "common/group/rank_link.h"

#include <algorithm>

namespace baton {

Duration UntilWaitIsTold(Duration waited) {
  constexpr Duration kFirst = std::chrono::seconds(10);
  constexpr Duration kEach = std::chrono::seconds(30);
  return waited < kFirst ? kFirst - waited : kEach - (waited - kFirst) % kEach;
}

StatusOr<RankLink::Message> ReceiveAndTell(RankLink& link,
                                           Duration limit,
                                           const std::function<void(Duration waited)>& tell) {
  Duration waited{};
  while (waited < limit) {
    const Duration part = std::min(limit - waited, UntilWaitIsTold(waited));
    StatusOr<RankLink::Message> message = link.Receive(part);
    if (message.ok() || message.status().code() != StatusCode::kDeadlineExceeded) return message;
    waited += part;
    tell(waited);
  }
  return MakeStatus(
      StatusCode::kDeadlineExceeded, "no message came within {:.0f} s", ToSeconds(limit));
}

}  // namespace baton
