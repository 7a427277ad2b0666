#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/metrics/metrics.h"
#include "common/metrics/request_outcome.h"
#include "router/core/replay_result.h"
#include "router/types.h"

namespace baton::router {

// The values of the gauges.
struct RouterGauges {
  int32_t running = 0;
  int32_t waiting = 0;
  int64_t index_entries = 0;
  int64_t failing_pairs = 0;
  double stalled_seconds = 0;
  int32_t workers_ready = 0;
  int32_t workers_suspect = 0;
  int32_t workers_lost = 0;
  int32_t workers_draining = 0;
};

// Percentiles over the last requests that ended with OK.
struct LatencyPercentiles {
  double ttft_p50_ms = 0;
  double ttft_p99_ms = 0;
  double tpot_p50_ms = 0;
  double tpot_p99_ms = 0;
};

// Replays that have ended (class Replays).
struct ReplayCounts {
  int64_t checked = 0;  // the outputs were equal
  int64_t mismatches = 0;
  std::array<int64_t, kReplaySkips> skipped{};  // by ReplaySkip
};

// All metrics of the router. Thread-safe.
class RouterProbe final {
 public:
  explicit RouterProbe(MetricsRegistry& registry);

  void SetGauges(const RouterGauges& gauges);
  // Counts a request that the core has ended.
  void OnOutcome(const Outcome& outcome);
  // Counts a request that ended before it reached the core: invalid, refused or cancelled.
  void OnRejected(const Status& status);
  // `count` tokens of one sample arrived together, `gap` after the previous token.
  void OnTokens(Duration gap, int32_t count);
  // A request ended with OK, and its whole output was handed to its client after `duration`.
  void OnServed(Duration duration) { request_.Observe(ToSeconds(duration)); }

  void OnReplay(const ReplayResult& result);

  ReplayCounts replays() const;
  int64_t requests_total() const { return static_cast<int64_t>(requests_.total()); }
  // Requests that ended by a fault of the cluster, not of their clients.
  int64_t requests_failed() const {
    return static_cast<int64_t>(requests_.value(RequestOutcome::kFailed));
  }
  int64_t retries() const { return static_cast<int64_t>(retries_.value()); }
  LatencyPercentiles latencies() const;

 private:
  void CountEnd(const Status& status, bool own_deadline);

  MetricsRegistry& registry_;
  Gauge running_;
  Gauge waiting_;
  Gauge index_entries_;
  Gauge failing_pairs_;
  Gauge stalled_;
  Gauge ready_;
  Gauge suspect_;
  Gauge lost_;
  Gauge draining_;
  OutcomeCounter requests_;
  Counter retries_;
  Counter refusals_;
  Counter served_alone_;
  Counter generated_tokens_;
  Counter cached_tokens_;
  Histogram ttft_;
  Histogram tpot_;
  Histogram itl_;
  Histogram request_;
  Histogram queue_;
  Histogram prefill_;
  Histogram transfer_;
  Counter replays_checked_;
  Counter replay_mismatches_;
  std::vector<Counter> replays_skipped_;  // by ReplaySkip
  Counter replays_cached_tokens_;

  // The last kRecent values, as rings.
  static constexpr size_t kRecent = 1024;
  mutable std::mutex mutex_;
  std::vector<double> recent_ttft_;
  std::vector<double> recent_tpot_;
  size_t next_ = 0;
};

}  // namespace baton::router
