#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "common/base/clock.h"
#include "kvtransfer/transport.h"

namespace baton {

// Which peers were told that they may write through which windows: they write by themselves, so a
// window is closed only when each of them said that it is done, or is gone. Pure: no I/O or clock.
// Owned by an IpcReceiver; its thread only.
class GrantTable final {
 public:
  using PeerId = uint64_t;

  explicit GrantTable(Duration fence_timeout) : fence_timeout_(fence_timeout) {}

  // `peer` may write through the open window of `key` from now on.
  void Give(PeerId peer, uint64_t key);
  bool holds(PeerId peer, uint64_t key) const;
  bool holds_any(PeerId peer) const;

  // The window was closed on this side. kClosed comes when no peer holds it any more.
  void Close(uint64_t key, uint32_t region);
  // The peer writes through the window no more, or through none at all.
  void OnDrained(PeerId peer, uint64_t key);
  void OnDrained(PeerId peer);

  // Has kUnfenced come for windows that were closed `fence_timeout` ago.
  void OnTime(Time now);
  // Whether a closed window is still held.
  bool is_closing() const { return !closing_.empty(); }
  // What happened since the last call.
  std::vector<Arrival> TakeArrivals();

 private:
  struct Closing {
    uint32_t region = 0;
    Time until{};  // zero: not seen by OnTime yet
    bool reported = false;
  };
  void CloseWhenFree(uint64_t key);

  const Duration fence_timeout_;
  std::map<uint64_t, std::set<PeerId>> holders_;  // by key
  std::map<uint64_t, Closing> closing_;
  std::vector<Arrival> arrivals_;
};

}  // namespace baton
