#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/security/security_probe.h"

namespace baton {

// Counts all peers, clients and operators that a process refuses, and logs the first of each kind,
// then one a minute with the number of refusals meanwhile. Thread-safe.
class Refusals final {
 public:
  explicit Refusals(MetricsRegistry& metrics) : probe_(metrics) {}

  // `port`: the port's purpose, for example "worker-link". `why` must not contain a secret or key.
  void Add(std::string_view port, std::string_view peer, const Status& why);
  SecurityProbe& probe() { return probe_; }

 private:
  struct Kind {
    int64_t unlogged = 0;
    Time next_line{};
  };

  SecurityProbe probe_;
  std::mutex mutex_;
  std::map<std::string, Kind> kinds_;  // by port and reason; guarded by mutex_
};

}  // namespace baton
