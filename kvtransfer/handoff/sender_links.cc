// The part of KvSender::Impl that watches the links to the peers.
#include <algorithm>

#include "kvtransfer/handoff/sender_impl.h"

namespace baton {

void KvSender::Impl::NoteStart(Session& session) {
  const Time now = core_.Now();
  if (session.first_post == Time{}) session.first_post = now;
  if (session.busy_since != Time{}) return;
  session.busy_since = now;
  const auto peer = peers_.find(session.peer);
  if (peer != peers_.end() && peer->second.moving++ == 0) peer->second.link.SetBusy(true, now);
}

void KvSender::Impl::NoteIdle(Session& session) {
  if (session.busy_since == Time{}) return;
  const Time now = core_.Now();
  session.busy += now - session.busy_since;
  session.busy_since = Time{};
  const auto peer = peers_.find(session.peer);
  if (peer == peers_.end() || peer->second.moving == 0) return;
  if (--peer->second.moving == 0) peer->second.link.SetBusy(false, now);
}

void KvSender::Impl::GiveUpLate(Time now) {
  std::map<WorkerId, std::vector<SessionKey>> waiting;
  for (auto& [key, session] : sessions_) {
    if (!session.machine.lacks_only_writes()) continue;
    if (session.waits_since == kNever) session.waits_since = now;
    waiting[session.peer].push_back(key);
  }
  for (auto& [id, keys] : waiting) {
    // Writes of computed prompts are sent in this order (PeerWriter::Terms::urgent).
    std::ranges::stable_sort(
        keys, {}, [this](const SessionKey& key) { return sessions_.Find(key)->waits_since; });
    const auto peer = peers_.find(id);
    if (peer != peers_.end()) GiveUpLate(peer->second, keys, now);
  }
}

uint64_t KvSender::Impl::GrantedBytes(const Session& session) const {
  const std::vector<std::vector<BlockId>>& granted = session.machine.grant().blocks;
  uint64_t bytes = 0;
  for (size_t group = 0; group < granted.size(); ++group) {
    const bool state = core_.options().layout.groups[group].state;
    const size_t pieces =
        state ? std::min<size_t>(1, granted[group].size()) : granted[group].size();
    bytes += pieces * block_bytes_[group];
  }
  return bytes;
}

void KvSender::Impl::GiveUpLate(Peer& peer, std::span<const SessionKey> waiting, Time now) {
  std::vector<LinkWatch::Waiting> hand_offs;
  for (const SessionKey& key : waiting) {
    const Session& session = *sessions_.Find(key);
    // A part of the pieces is less than that part of the bytes where states are left, and
    // replicated planes are written more often than they were granted.
    const uint64_t granted = GrantedBytes(session);
    const double bytes =
        std::max(session.machine.unwritten_part() * static_cast<double>(granted),
                 static_cast<double>(granted) - static_cast<double>(session.machine.bytes()));
    // A hand-off without patience for another way also goes on when its time does not suffice.
    const Duration patience = session.patience == Duration::max()
                                  ? session.patience
                                  : std::min(session.patience, session.machine.deadline() - now);
    hand_offs.push_back({session.waits_since, static_cast<uint64_t>(bytes), patience});
  }
  for (const LinkWatch::Late& late : peer.link.FindLate(hand_offs, now)) {
    const LinkWatch::Waiting& hand_off = hand_offs[late.index];
    DoAbort(
        waiting[late.index],
        MakeStatus(StatusCode::kUnavailable,
                   "the link is slow: {:.2f} MB are left after {:.1f} s, and take {:.1f} s more "
                   "at {:.2f} MB/s",
                   static_cast<double>(hand_off.bytes) / 1e6,
                   ToSeconds(now - hand_off.since),
                   ToSeconds(late.expected),
                   late.bytes_per_second / 1e6));
  }
}

}  // namespace baton
