#include "common/security/refusals.h"

#include <algorithm>

#include "common/base/host_port.h"
#include "common/log/log.h"

namespace baton {
namespace {

constexpr Duration kPause = std::chrono::minutes(1);
constexpr const char* kOthers = "others";

const Logger kLog("security");

}  // namespace

void Refusals::Add(std::string_view port, std::string_view peer, const Status& why) {
  probe_.OnRefused(port);
  const Time now = SteadyClock().Now();
  int64_t unlogged = 0;
  {
    std::lock_guard lock(mutex_);
    std::pair<std::string, std::string> key(port, HostOfPeer(peer));
    if (entries_.size() >= kMaxPeers && !entries_.contains(key)) key.second = kOthers;
    Entry& entry = entries_[key];
    entry.peer.port = key.first;
    entry.peer.address = key.second;
    entry.peer.reason = Message(why);
    entry.peer.last = now;
    ++entry.peer.refusals;
    if (now < entry.next_line) {
      ++entry.unlogged;
      return;
    }
    unlogged = std::exchange(entry.unlogged, 0);
    entry.next_line = now + kPause;
  }
  kLog.Warning("{}: refused {}: {}{}",
               port,
               peer,
               Message(why),
               unlogged > 0 ? fmt::format(" ({} more since the last such line)", unlogged) : "");
}

std::vector<RefusedPeer> Refusals::Latest(size_t most) const {
  std::vector<RefusedPeer> all;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, entry] : entries_) all.push_back(entry.peer);
  }
  std::ranges::sort(all, [](const auto& a, const auto& b) { return a.last > b.last; });
  all.resize(std::min(most, all.size()));
  return all;
}

}  // namespace baton
