#pragma once

#include <map>
#include <mutex>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace baton {

// Why a worker has not joined the routers it looks for. An attempt is made every few seconds; the
// log gets a new reason at once and the same reason again after pauses that double, so that who
// looks finds it near the end of the log and nobody finds the log full of it. Thread-safe.
class JoinProblems final {
 public:
  static constexpr Duration kFirstPause = std::chrono::seconds(10);
  static constexpr Duration kLongestPause = std::chrono::minutes(10);

  // `router`: an address, or a name that cannot be looked up. True when it was logged.
  bool Note(const std::string& router, const Status& why, Time now);
  // It was joined, or is looked for no longer.
  void Forget(const std::string& router);

  // "127.0.0.1:7070: it refused; …", or empty without a problem.
  std::string ToString() const;

 private:
  struct Problem {
    std::string why;
    int attempts = 0;
    Duration pause = kFirstPause;  // until it is logged again
    Time next_line{};
  };

  mutable std::mutex mutex_;
  std::map<std::string, Problem> problems_;  // by router
};

}  // namespace baton
