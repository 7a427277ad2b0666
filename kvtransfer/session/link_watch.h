#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "common/base/clock.h"

namespace baton {

// Measures the rate at which a peer acknowledges bytes, while writes to it are under way, and finds
// the hand-offs that are not worth waiting for. Only time in which writes are under way counts. So
// a rate is known before the first hand-off has ended, and idle time does not lower it.
//
// Acknowledgements are coarse: each stands for a whole write. Between two of them the rate is at
// most what it were if another write was acknowledged now.
//
// Pure: no clock. Owned by KvSender, one for each peer; used on its thread.
class LinkWatch final {
 public:
  // A hand-off whose prompt is computed, so that only its writes are outstanding.
  struct Waiting {
    Time since{};         // since when only its writes are outstanding
    uint64_t bytes = 0;   // not acknowledged yet
    Duration patience{};  // the hand-off is worth waiting for that long
  };
  struct Late {
    size_t index = 0;     // in `waiting`
    Duration expected{};  // until its last byte is acknowledged
    double bytes_per_second = 0;
  };

  // `op_bytes`: the most bytes that one acknowledgement stands for.
  explicit LinkWatch(uint64_t op_bytes) : op_bytes_(op_bytes) {}

  // Whether writes are under way from now on.
  void SetBusy(bool busy, Time now);
  // Bytes were acknowledged.
  void OnWritten(uint64_t bytes, Time now);

  // The rate over the last seconds in which writes were under way. 0: not known, or forgotten,
  // because no write was under way for a minute: the link may be another one by now.
  double bytes_per_second(Time now) const;

  // The hand-offs that have waited for some seconds, and whose rest is expected to take longer than
  // their patience. `waiting` is in the order in which the link serves them. A late hand-off does
  // not count as load of the link, so that those behind it are not late because of it.
  std::vector<Late> FindLate(std::span<const Waiting> waiting, Time now) const;

 private:
  struct Point {
    double seconds = 0;  // in which writes were under way
    uint64_t bytes = 0;
  };

  double Seconds(Time now) const;
  // The rate from the start of the window to the latest acknowledgement.
  double LongRate(double seconds) const;
  // The rate over acknowledgements of the last second; 0 if there are fewer than two. It is high
  // again soon after a stall.
  double RecentRate(double seconds) const;

  uint64_t op_bytes_;
  bool busy_ = false;
  Time changed_{};            // the latest SetBusy that changed busy_
  double seconds_ = 0;        // until changed_
  uint64_t bytes_ = 0;        // acknowledged
  std::deque<Point> points_;  // after acknowledgements, at least kStep apart; the first is (0, 0)
};

}  // namespace baton
