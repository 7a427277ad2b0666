#include "router/workers/refused_joins.h"

#include <algorithm>
#include <bit>

#include "common/base/host_port.h"

namespace baton::router {
namespace {

constexpr size_t kMaxReason = 1024;
constexpr size_t kMaxId = 256;

}  // namespace

std::vector<RefusedJoin>::iterator RefusedJoins::Find(const WorkerId& worker,
                                                      const std::string& address) {
  const std::string host = HostOfPeer(address);
  return std::find_if(entries_.begin(), entries_.end(), [&](const RefusedJoin& entry) {
    return entry.worker == worker && HostOfPeer(entry.address) == host;
  });
}

bool RefusedJoins::Add(const WorkerId& worker,
                       const std::string& address,
                       const Status& why,
                       Time now) {
  const WorkerId id(worker.value().substr(0, kMaxId));
  RefusedJoin entry{id, address, std::string(Message(why).substr(0, kMaxReason)), 1, now};
  bool news = true;
  if (const auto known = Find(id, address); known != entries_.end()) {
    entry.attempts += known->attempts;
    news =
        known->reason != entry.reason || std::has_single_bit(static_cast<uint64_t>(entry.attempts));
    entries_.erase(known);
  }
  entries_.insert(entries_.begin(), std::move(entry));
  if (entries_.size() > kMaxEntries) entries_.pop_back();
  return news;
}

void RefusedJoins::Forget(const WorkerId& worker, const std::string& address) {
  if (const auto known = Find(worker, address); known != entries_.end()) entries_.erase(known);
}

}  // namespace baton::router
