#pragma once

#include <string_view>

#include "common/metrics/metrics.h"

namespace baton {

// All metrics of authentication. Thread-safe.
class SecurityProbe final {
 public:
  explicit SecurityProbe(MetricsRegistry& registry);

  // Counts a peer, client or operator that was refused. `port`: the port's purpose, "worker-link".
  void OnRefused(std::string_view port);
  // Counts a changed file of keys that could not be read; the keys read before stay valid.
  void OnReloadFailed() { failed_reloads_.Add(); }

 private:
  MetricsRegistry& registry_;
  Counter failed_reloads_;
};

}  // namespace baton
