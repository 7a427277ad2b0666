#include "kvtransfer/one_sided/grant_table.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

Arrival EndOf(uint64_t key, uint32_t region, Arrival::Kind kind) {
  Arrival arrival;
  arrival.kind = kind;
  arrival.window_key = key;
  arrival.region = region;
  return arrival;
}

}  // namespace

void GrantTable::Give(PeerId peer, uint64_t key) {
  holders_[key].insert(peer);
}

bool GrantTable::holds(PeerId peer, uint64_t key) const {
  const auto found = holders_.find(key);
  return found != holders_.end() && found->second.contains(peer);
}

bool GrantTable::holds_any(PeerId peer) const {
  return std::any_of(holders_.begin(), holders_.end(), [&](const auto& entry) {
    return entry.second.contains(peer);
  });
}

void GrantTable::Close(uint64_t key, uint32_t region) {
  closing_[key].region = region;
  CloseWhenFree(key);
}

void GrantTable::OnDrained(PeerId peer, uint64_t key) {
  const auto found = holders_.find(key);
  if (found == holders_.end() || found->second.erase(peer) == 0) return;
  if (found->second.empty()) holders_.erase(found);
  CloseWhenFree(key);
}

void GrantTable::OnDrained(PeerId peer) {
  std::vector<uint64_t> held;
  for (const auto& [key, peers] : holders_) {
    if (peers.contains(peer)) held.push_back(key);
  }
  for (const uint64_t key : held) OnDrained(peer, key);
}

void GrantTable::CloseWhenFree(uint64_t key) {
  const auto closing = closing_.find(key);
  if (closing == closing_.end() || holders_.contains(key)) return;
  arrivals_.push_back(EndOf(key, closing->second.region, Arrival::Kind::kClosed));
  closing_.erase(closing);
}

bool GrantTable::IsOverdue(const Closing& closing, Time now) const {
  return !closing.reported && closing.until != Time{} && now >= closing.until;
}

std::set<GrantTable::PeerId> GrantTable::Overdue(Time now) const {
  std::set<PeerId> overdue;
  for (const auto& [key, closing] : closing_) {
    if (IsOverdue(closing, now)) overdue.insert(holders_.at(key).begin(), holders_.at(key).end());
  }
  return overdue;
}

void GrantTable::OnTime(Time now) {
  for (auto& [key, closing] : closing_) {
    if (closing.until == Time{}) closing.until = now + fence_timeout_;
    if (!IsOverdue(closing, now)) continue;
    closing.reported = true;
    Arrival unfenced = EndOf(key, closing.region, Arrival::Kind::kUnfenced);
    unfenced.status = MakeStatus(StatusCode::kUnavailable,
                                 "{} peers did not confirm within {:.3f} s that they write no more",
                                 holders_[key].size(),
                                 ToSeconds(fence_timeout_));
    arrivals_.push_back(std::move(unfenced));
  }
}

std::vector<Arrival> GrantTable::TakeArrivals() {
  return std::exchange(arrivals_, {});
}

}  // namespace baton
