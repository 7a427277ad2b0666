#pragma once

#include <map>
#include <mutex>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace baton {

// The reasons why a worker has not joined its routers. The worker tries every few seconds. A new
// reason is logged at once; the same reason is logged again after pauses that double, so that it
// stays near the end of the log but does not fill the log. Thread-safe.
class JoinProblems final {
 public:
  static constexpr Duration kFirstPause = std::chrono::seconds(10);
  static constexpr Duration kLongestPause = std::chrono::minutes(10);

  // Records a failed attempt. `router` is an address, or a name that could not be resolved. Returns
  // true when the reason was logged.
  bool Note(const std::string& router, const Status& why, Time now);
  // Removes `router`: the worker joined it, or does not look for it any more.
  void Forget(const std::string& router);

  // "127.0.0.1:7070: connection refused; …", or empty when there is no problem.
  std::string ToString() const;

 private:
  struct Problem {
    std::string why;
    int attempts = 0;
    Duration pause = kFirstPause;  // between two log lines with the same reason
    Time next_line{};
  };

  mutable std::mutex mutex_;
  std::map<std::string, Problem> problems_;  // by router
};

}  // namespace baton
