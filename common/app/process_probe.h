#pragma once

#include <cstdint>

#include "common/metrics/metrics.h"

namespace baton {

// The metrics that every process has: `process_*` with the names that Prometheus' client libraries
// use, read from /proc before each scrape; the version; the number of dropped log messages.
// Thread-safe.
class ProcessProbe final {
 public:
  // `metrics` must outlive the probe.
  explicit ProcessProbe(MetricsRegistry& metrics);
  ~ProcessProbe();
  ProcessProbe(const ProcessProbe&) = delete;
  ProcessProbe& operator=(const ProcessProbe&) = delete;

 private:
  void Update();

  MetricsRegistry& metrics_;
  Counter cpu_seconds_;
  Gauge resident_bytes_;
  Gauge virtual_bytes_;
  Gauge open_fds_;
  Gauge max_fds_;
  Counter log_dropped_;
  MetricsRegistry::UpdateKey update_ = 0;
};

}  // namespace baton
