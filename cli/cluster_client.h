#pragma once

#include <map>
#include <memory>
#include <optional>
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

// The latest steps of one rank of a worker.
struct RankSummary {
  double step_ms = 0;
  std::optional<double> exchange_ms = {};  // the part of step_ms in exchanges with other ranks
};

// The cache groups of a worker whose layers keep the same for sequences (CacheGroupLoad).
struct CacheGroupSummary {
  std::string name;
  int layers = 0;
  uint64_t bytes = 0;       // of a block of tokens, or of a state
  int64_t blocks_held = 0;  // by requests
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
  std::optional<double> draft_acceptance;  // nothing before the first draft
  double prompt_tokens_per_second = 0;
  double output_tokens_per_second = 0;
  double heartbeat_age_ms = 0;
  std::string address;
  std::string http_address;
  std::string device;         // the device that computes: "cpu", "cuda:0"
  bool deterministic = true;  // its tokens do not depend on other requests
  std::string version;        // of the worker's program
  std::vector<TransportSummary> transports;
  std::vector<RankSummary> ranks;
  std::vector<CacheGroupSummary> cache_groups;
};

// A worker whose join the router refused.
struct RefusedSummary {
  std::string worker;
  std::string address;
  std::string reason;
  int64_t attempts = 0;
  double age_ms = 0;
};

// A prefill worker and a decode worker whose latest KV hand-off failed.
struct FailingPairSummary {
  std::string prefill;
  std::string decode;
  int failures = 0;  // in a row
  std::string reason;
  double age_ms = 0;
  double avoided_ms = 0;  // how long other workers are still preferred
};

// A peer, client or operator that did not prove who it is.
struct RefusedPeerSummary {
  std::string port;
  std::string address;
  std::string reason;
  int64_t refusals = 0;
  double age_ms = 0;
};

// A client with a key.
struct CallerSummary {
  std::string id;  // "tenant/name of the key"
  int64_t running = 0;
  int64_t requests = 0;
  int64_t tokens = 0;
  std::map<std::string, int64_t> errors;  // by gRPC's name of the status
};

// Replays of finished requests that check their tokens.
struct ReplaySummary {
  double sample = 0;  // the fraction that is replayed
  int64_t checked = 0;
  int64_t mismatches = 0;
  std::map<std::string, int64_t> skipped;  // by reason
  int waiting = 0;
  int running = 0;
};

// A request that runs on the named workers, and its output.
struct PinnedCall {
  std::string prompt;
  bool raw = false;          // without the chat template
  std::string prefill = {};  // empty: the decode worker serves alone
  std::string decode = {};
  int max_tokens = 64;
  std::optional<uint64_t> seed = {};  // absent: greedy
  uint32_t timeout_ms = 120'000;
};
struct PinnedAnswer {
  std::vector<int32_t> tokens;
  std::string finish;  // "stop" or "length"
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
  double stalled_seconds = 0;            // requests wait and nothing runs; 0: no stall
  std::optional<ReplaySummary> replays;  // absent: the router replays nothing
  std::vector<WorkerSummary> workers;
  std::vector<CallerSummary> callers;  // with the most requests first
  std::vector<FailingPairSummary> failing_pairs;
  std::vector<RefusedSummary> refused;            // the latest first
  std::vector<RefusedPeerSummary> refused_peers;  // the latest first
  std::string json;                               // the whole ClusterStatus as JSON
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
  // Generates on the workers that `call` names. Errors: NotFound for an unknown worker, Unavailable
  // for one that is not ready or as above, those of the generation.
  StatusOr<PinnedAnswer> GenerateOn(const PinnedCall& call);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
