#include "kvtransfer/verbs/rail_queues.h"

#include <algorithm>

#include "common/base/check.h"
#include "kvtransfer/loop/epoll.h"

namespace baton {
namespace {

// "rail 0: 4, rail 1: 4".
template <class Rails, class Count>
std::string Describe(const Rails& rails, Count count) {
  std::string text;
  for (const auto& rail : rails) {
    const auto [index, queue_pairs] = count(rail);
    text += fmt::format("{}rail {}: {}", text.empty() ? "" : ", ", index, queue_pairs);
  }
  return text;
}

}  // namespace

StatusOr<std::unique_ptr<RailQueues>> RailQueues::Create(std::span<const RailUse> rails,
                                                         const Options& options) {
  BATON_ASSIGN_OR_RETURN(UniqueFd epoll, MakeEpoll());
  std::unique_ptr<RailQueues> queues(new RailQueues(std::move(epoll)));
  for (const RailUse& use : rails) {
    const uint32_t limit = use.rail->max_requests();
    QueuePair::Options pair_options;
    pair_options.sends = std::min(options.sends, limit);
    pair_options.receives = std::min(options.receives, limit);
    pair_options.sources = options.is_writable ? 1 : use.rail->max_sources();
    pair_options.is_writable = options.is_writable;
    RailState state;
    state.use = use;
    state.first = queues->queue_pairs_.size();
    BATON_ASSIGN_OR_RETURN(
        state.completions,
        CompletionQueue::Create(*use.rail,
                                use.queue_pairs * (pair_options.sends + pair_options.receives)));
    BATON_RETURN_IF_ERROR(WatchFd(queues->epoll_.get(), state.completions->fd()));
    queues->rails_.push_back(std::move(state));
    for (uint32_t i = 0; i < use.queue_pairs; ++i) {
      NumberedPair numbered;
      numbered.rail = queues->rails_.size() - 1;
      BATON_ASSIGN_OR_RETURN(
          numbered.pair,
          QueuePair::Create(*use.rail, *queues->rails_.back().completions, pair_options));
      numbered.number = numbered.pair->address().number;
      queues->queue_pairs_.push_back(std::move(numbered));
    }
  }
  return queues;
}

std::vector<RailAddress> RailQueues::Addresses(std::span<const uint32_t> rkeys) const {
  std::vector<RailAddress> addresses;
  for (size_t i = 0; i < rails_.size(); ++i) {
    RailAddress address;
    address.port = rails_[i].use.rail->port();
    address.rkey = rkeys.empty() ? 0 : rkeys[i];
    address.index = rails_[i].use.index;
    addresses.push_back(std::move(address));
  }
  for (const NumberedPair& pair : queue_pairs_) {
    addresses[pair.rail].queue_pairs.push_back(pair.pair->address());
  }
  return addresses;
}

Status RailQueues::Connect(std::span<const RailAddress> peer, bool sends) {
  const auto same = [](const RailState& ours, const RailAddress& theirs) {
    return ours.use.index == theirs.index && ours.use.queue_pairs == theirs.queue_pairs.size();
  };
  if (!std::ranges::equal(rails_, peer, same)) {
    return InvalidArgument("the peer connects queue pairs on {}; this side has them on {}",
                           Describe(peer,
                                    [](const RailAddress& rail) {
                                      return std::pair(rail.index, rail.queue_pairs.size());
                                    }),
                           Describe(rails_, [](const RailState& rail) {
                             return std::pair(rail.use.index, size_t{rail.use.queue_pairs});
                           }));
  }
  for (size_t i = 0; i < queue_pairs_.size(); ++i) {
    const RailState& rail = rails_[queue_pairs_[i].rail];
    const RailAddress& theirs = peer[queue_pairs_[i].rail];
    BATON_RETURN_IF_ERROR(CheckReachable(rail.use.index, rail.use.rail->port(), theirs.port));
    BATON_RETURN_IF_ERROR(
        queue_pairs_[i].pair->Connect(theirs.port, theirs.queue_pairs[i - rail.first], sends));
  }
  return OkStatus();
}

size_t RailQueues::IndexOf(const RailState& rail, uint32_t number) const {
  const size_t end = rail.first + rail.use.queue_pairs;
  size_t index = rail.first;
  while (index < end && queue_pairs_[index].number != number) ++index;
  BATON_CHECK(index < end, "a completion of queue pair {}, which is not of this queue", number);
  return index;
}

bool RailQueues::Arm() {
  bool any = false;
  for (RailState& rail : rails_) any = rail.completions->Arm() || any;
  return any;
}

void RailQueues::TakeNotifications() {
  for (RailState& rail : rails_) rail.completions->TakeNotifications();
}

bool RailQueues::Destroy() {
  bool all = true;
  for (NumberedPair& pair : queue_pairs_) all = pair.pair->Destroy() && all;
  return all;
}

}  // namespace baton
