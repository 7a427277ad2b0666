#pragma once

#include <utility>

#include "common/base/clock.h"

namespace baton {

// Whether busy-polling pays: the last progress was at most `longest` ago, so that more will follow
// soon. Not thread-safe.
class RecentProgress final {
 public:
  explicit RecentProgress(Duration longest) : longest_(longest) {}

  void OnProgress() { has_moved_ = true; }
  // Progress since the last call counts as progress at `now`.
  bool IsRecent(Time now) {
    if (std::exchange(has_moved_, false)) moved_ = now;
    return now < moved_ + longest_;
  }

 private:
  const Duration longest_;
  bool has_moved_ = false;  // since the last IsRecent
  Time moved_{};
};

}  // namespace baton
