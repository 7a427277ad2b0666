#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/cluster/load.h"
#include "common/cluster/request.h"
#include "common/engine/engine.h"
#include "common/metrics/metrics.h"
#include "common/metrics/request_outcome.h"
#include "common/worker/request_book.h"

namespace baton {

// All metrics of a worker. Thread-safe.
class WorkerProbe final {
 public:
  explicit WorkerProbe(MetricsRegistry& metrics);
  ~WorkerProbe();

  // From now until Detach, each scrape of the metrics sets gauges and counters from engine.Stats().
  void Attach(const Engine& engine, const Executor& executor);
  void Detach();

  // How long requests have waited in the engine while nothing ran; zero: no stall.
  void SetStalled(Duration stalled) { stalled_.Set(ToSeconds(stalled)); }
  // The number of KV blocks in quarantine now.
  void SetQuarantined(uint32_t blocks) { quarantined_blocks_.Set(blocks); }
  // The KV transfers with each peer, and the number of messages about unknown hand-offs since the
  // start, for the next scrape.
  void SetPeers(const std::map<WorkerId, PeerTraffic>& peers, uint64_t rejected_messages);
  // Counts a request that ended. `times` is valid only when `status` is OK.
  void RequestEnded(const BookEntry& entry, const Status& status, const RequestTimes& times);
  // `transfer`: time from the last prompt chunk ready to KV committed; zero on the receiver, which
  // does not know it. `transport`: the transport that moved the bytes; empty when no byte had to be
  // moved.
  void HandoffCommitted(Duration transfer, uint64_t bytes, const std::string& transport);
  void HandoffFailed() { handoffs_failed_.Add(); }
  void HandoffRefused() { handoffs_refused_.Add(); }
  void HandoffNotNeeded() { handoffs_not_needed_.Add(); }

 private:
  void Update(const EngineStats& stats);
  void UpdateGroup(const CacheGroupLoad& group);
  void UpdateRank(size_t rank, const RankTimes& times);
  void UpdatePeers();
  void UpdatePeer(const WorkerId& peer, const PeerTraffic& traffic);

  MetricsRegistry& metrics_;
  MetricsRegistry::UpdateKey update_ = 0;
  bool attached_ = false;
  std::mutex peers_mutex_;
  std::map<WorkerId, PeerTraffic> peers_;        // guarded by peers_mutex_
  uint64_t rejected_messages_ = 0;               // guarded by peers_mutex_
  std::map<WorkerId, MetricLabels> transports_;  // the labels of each peer's present transport

  Gauge running_;
  Gauge waiting_;
  Gauge utilization_;
  Gauge block_tokens_;
  Gauge blocks_;
  Gauge leaked_blocks_;
  Gauge quarantined_blocks_;
  Gauge stalled_;
  Counter prompt_tokens_;
  Counter cached_tokens_;
  Counter output_tokens_;
  Counter drafts_;
  Counter accepted_drafts_;
  Counter preemptions_;
  Counter bubble_;
  OutcomeCounter requests_;
  Counter handoffs_done_;
  Counter handoffs_failed_;
  Counter handoffs_refused_;
  Counter handoffs_not_needed_;
  Counter rejected_;
  Histogram ttft_;
  Histogram tpot_;
  Histogram queue_;
  Histogram prefill_;
  Histogram transfer_;
};

}  // namespace baton
