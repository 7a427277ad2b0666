#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/security/security_probe.h"

namespace baton {

// A host that was refused at a port, since the process' start.
struct RefusedPeer {
  std::string port;     // the port's purpose
  std::string address;  // the host, or "others"
  std::string reason;   // of the last refusal
  int64_t refusals = 0;
  Time last{};
};

// Counts all peers, clients and operators that a process refuses. Of each host at each port it logs
// the first refusal, then one a minute with the number of refusals meanwhile. Hosts beyond
// kMaxPeers count together, so that neither the memory nor the log grows without bound.
// Thread-safe.
class Refusals final {
 public:
  static constexpr size_t kMaxPeers = 256;

  explicit Refusals(MetricsRegistry& metrics) : probe_(metrics) {}

  // `port`: the port's purpose, for example "ToRouter". `peer`: an address, with or without a port.
  // `why` must not contain a secret or key.
  void Add(std::string_view port, std::string_view peer, const Status& why);
  // The `most` peers that were refused last, the latest first.
  std::vector<RefusedPeer> Latest(size_t most) const;
  SecurityProbe& probe() { return probe_; }

 private:
  struct Entry {
    RefusedPeer peer;
    int64_t unlogged = 0;
    Time next_line{};
  };

  SecurityProbe probe_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Entry>
      entries_;  // by port, host; guarded by mutex_
};

}  // namespace baton
