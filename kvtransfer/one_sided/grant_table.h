#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "common/base/clock.h"
#include "kvtransfer/transport.h"

namespace baton {

// Records which peers may write through which windows. The peers write into the memory directly, so
// a window is closed only when each of its peers has confirmed that it writes no more, or is gone.
// Pure: no I/O or clock. Owned by an OneSidedReceiver; its thread only.
class GrantTable final {
 public:
  using PeerId = uint64_t;

  explicit GrantTable(Duration fence_timeout) : fence_timeout_(fence_timeout) {}

  // `peer` may write through the open window of `key` from now on.
  void Give(PeerId peer, uint64_t key);
  bool holds(PeerId peer, uint64_t key) const;
  bool holds_any(PeerId peer) const;

  // The window was closed on this side. kClosed follows when no peer holds it any more.
  void Close(uint64_t key, uint32_t region);
  // The peer no longer writes through the window, or through any window.
  void OnDrained(PeerId peer, uint64_t key);
  void OnDrained(PeerId peer);

  // Reports kUnfenced, once, for each window that was closed `fence_timeout` ago and is still held.
  void OnTime(Time now);
  // The peers that hold a window for which the next OnTime would report kUnfenced.
  std::set<PeerId> Overdue(Time now) const;
  // Whether a peer still holds a closed window.
  bool is_closing() const { return !closing_.empty(); }
  // The events since the last call.
  std::vector<Arrival> TakeArrivals();

 private:
  struct Closing {
    uint32_t region = 0;
    Time until{};  // zero until the next OnTime
    bool reported = false;
  };
  bool IsOverdue(const Closing& closing, Time now) const;
  void CloseWhenFree(uint64_t key);

  const Duration fence_timeout_;
  std::map<uint64_t, std::set<PeerId>> holders_;  // by key
  std::map<uint64_t, Closing> closing_;
  std::vector<Arrival> arrivals_;
};

}  // namespace baton
