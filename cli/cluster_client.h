#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/router_endpoint.h"
#include "common/base/status.h"

namespace baton {

struct TransportSummary {
  std::string peer;
  std::string transport;
  uint64_t bytes = 0;
  uint64_t transfers = 0;
  double gigabytes_per_second = 0;
  std::string not_taken = {};  // why preferred transports are not in use
  uint64_t writes = 0;
  uint64_t resent_blocks = 0;
  uint64_t checksum_errors = 0;
  uint64_t fences = 0;
  uint32_t open = 0;  // hand-offs under way
  uint32_t quarantined_blocks = 0;
  double oldest_ms = 0;  // the age of the oldest hand-off under way
};

struct WorkerSummary {
  std::string id;
  std::string roles;
  std::string state;
  int running = 0;
  int waiting = 0;
  int awaiting_kv = 0;
  int blocks_total = 0;
  int blocks_free = 0;
  int blocks_leaked = 0;
  int blocks_quarantined = 0;
  double cache_hit_rate = 0;
  double prompt_tokens_per_second = 0;
  double output_tokens_per_second = 0;
  double heartbeat_age_ms = 0;
  std::string address;
  std::string http_address;
  std::string device;   // the device that computes: "cpu", "cuda:0"
  std::string version;  // of the worker's program
  std::vector<TransportSummary> transports;
};

// A worker whose join the router refused.
struct RefusedSummary {
  std::string worker;
  std::string address;
  std::string reason;
  int64_t attempts = 0;
  double age_ms = 0;
};

// ClusterStatus of proto/admin.proto: the cluster as one router sees it.
struct ClusterSummary {
  std::string router;
  std::string model;
  std::string version;
  double uptime_seconds = 0;
  int running = 0;
  int waiting = 0;
  int64_t total = 0;
  int64_t failed = 0;
  int64_t retries = 0;
  double ttft_p50_ms = 0;
  double ttft_p99_ms = 0;
  double tpot_p50_ms = 0;
  double tpot_p99_ms = 0;
  std::vector<WorkerSummary> workers;
  std::vector<RefusedSummary> refused;  // the latest first
  std::string json;                     // the whole ClusterStatus as JSON
};

// A client of a router's Admin service, which listens on admin_listen. Thread-safe.
class ClusterClient final {
 public:
  explicit ClusterClient(const RouterEndpoint& endpoint);
  ~ClusterClient();

  // Errors: Unavailable, which names the address and the command that starts a cluster.
  StatusOr<ClusterSummary> GetStatus();
  // Requests that a worker finishes its requests and leaves. Its process then exits unless `keep`.
  // Errors: NotFound for an unknown worker; Unavailable as above.
  Status Drain(const std::string& worker_id, bool keep);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
