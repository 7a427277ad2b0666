#pragma once

#include "common/metrics/metrics.h"

namespace baton {

// All metrics of a process' HTTP server. Thread-safe.
class HttpProbe final {
 public:
  explicit HttpProbe(MetricsRegistry& registry);

  void SetConnections(int count) { connections_.Set(count); }
  // A handler, or something on the io thread, threw an exception.
  void OnException() { exceptions_.Add(); }
  // The server answered by itself, without a handler; a connection closed without an answer: 503.
  void OnRefused(int status);

 private:
  MetricsRegistry& registry_;
  Gauge connections_;
  Counter exceptions_;
};

}  // namespace baton
