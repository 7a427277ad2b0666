#pragma once

#include <cstddef>
#include <functional>
#include <set>

#include "common/base/clock.h"
#include "common/http/flood_budget.h"

namespace baton {

// What the connections of one port hold in memory together before they have proven anything.
// When they hold too much, the one that holds the most is ended, so that few strangers cannot keep
// out others. Not thread-safe.
class StrangerLoad final {
 public:
  // The part of one connection. Must not outlive the load.
  class Share final {
   public:
    // `proven`: whether the connection has proven itself meanwhile. `end`: ends the connection; it
    // must not destroy the share.
    Share(StrangerLoad& load, std::function<bool()> proven, std::function<void()> end);
    ~Share();
    Share(const Share&) = delete;

    // The connection holds `bytes` more. May end any connection of the port.
    void Add(size_t bytes);
    void Remove(size_t bytes);

   private:
    friend class StrangerLoad;

    StrangerLoad& load_;
    const std::function<bool()> proven_;
    const std::function<void()> end_;
    size_t bytes_ = 0;
  };

  explicit StrangerLoad(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Counts a request that a stranger has reset: gRPC frees it later. False when the strangers of
  // this port reset too many.
  bool TakeReset(Time now) { return resets_.Take(now); }
  size_t bytes() const { return bytes_; }

 private:
  void EndLargest();

  static constexpr double kResetBurst = 500;
  static constexpr double kResetsPerSecond = 200;

  const size_t max_bytes_;
  size_t bytes_ = 0;
  std::set<Share*> shares_;
  FloodBudget resets_{kResetBurst, kResetsPerSecond};
};

}  // namespace baton
