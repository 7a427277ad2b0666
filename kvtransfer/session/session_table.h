#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "kvtransfer/messages/messages.h"

namespace baton {

// The sessions of one end, by (id, epoch). A Session has a `machine` with wake_time() and the
// WorkerId `peer`. With and Due return keys, not sessions, because handling one session may end
// others.
template <class Session>
class SessionTable final {
 public:
  using Map = std::map<SessionKey, Session>;

  Session* Find(const SessionKey& key) {
    const auto found = sessions_.find(key);
    return found == sessions_.end() ? nullptr : &found->second;
  }
  // The key must be new.
  template <class... Args>
  Session& Add(const SessionKey& key, Args&&... args) {
    return sessions_.try_emplace(key, std::forward<Args>(args)...).first->second;
  }
  // Whether there is the same session with a later epoch.
  bool HasLater(const SessionKey& key) const {
    const auto next = sessions_.upper_bound(key);
    return next != sessions_.end() && next->first.first == key.first;
  }
  void Erase(const SessionKey& key) { sessions_.erase(key); }
  typename Map::node_type Extract(const SessionKey& key) { return sessions_.extract(key); }

  std::vector<SessionKey> With(const WorkerId& peer) const {
    return Keys([&peer](const Session& session) { return session.peer == peer; });
  }
  std::vector<SessionKey> Due(Time now) const {
    return Keys([now](const Session& session) { return session.machine.wake_time() <= now; });
  }

  size_t size() const { return sessions_.size(); }
  bool empty() const { return sessions_.empty(); }
  typename Map::iterator begin() { return sessions_.begin(); }
  typename Map::iterator end() { return sessions_.end(); }
  typename Map::const_iterator begin() const { return sessions_.begin(); }
  typename Map::const_iterator end() const { return sessions_.end(); }

 private:
  template <class Predicate>
  std::vector<SessionKey> Keys(const Predicate& wanted) const {
    std::vector<SessionKey> keys;
    for (const auto& [key, session] : sessions_) {
      if (wanted(session)) keys.push_back(key);
    }
    return keys;
  }

  Map sessions_;
};

}  // namespace baton
