#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/serving/load_client.h"
#include "cli/local_cluster.h"

namespace baton {

// Which workers a cluster has. Each worker takes as many of its role's devices as it has ranks.
enum class SideKind {
  kUnified,  // unified workers
  kSplit,    // prefill workers and decode workers
  // One unified worker and one decode worker. The router alternates: the unified worker serves
  // every second request alone and hands the others over. The two kinds of requests then differ
  // only by the hand-off: the prefill runs in the same process, in the same memory.
  kTurns,
};

// The names of the workers of kTurns.
constexpr const char* kUnifiedWorker = "decode-0";
constexpr const char* kDecodeWorker = "decode-1";

struct SideOptions {
  std::string model;  // a path
  int32_t vocabulary = 0;
  bool dummy = false;
  std::vector<std::string> prefill_devices = {"cuda:0"};
  std::vector<std::string> decode_devices = {"cuda:1"};
  std::vector<std::string> unified_devices = {"cuda:0"};
  RankCounts prefill_ranks;  // also of the unified worker of kTurns
  RankCounts decode_ranks;
  RankCounts unified_ranks;
  std::string transport = "cuda_ipc";  // empty: any
  std::string log_folder;              // empty: stderr
  std::vector<std::string> worker_set;
  std::vector<std::string> decode_set;  // of the decode workers of kSplit
};

// A cluster of processes and a client of this cluster. Several unified workers are several
// clusters, to which requests are dealt in turn: one router would let unified workers hand over to
// each other. For the main thread. Failures end the process with a message.
class Side final {
 public:
  // Returns when all workers have joined.
  Side(const SideOptions& options, SideKind kind);
  // Drains the cluster, so that its devices are free afterwards.
  ~Side();

  LoadClient& client() { return *clients_[sent_++ % clients_.size()]; }
  // Waits for the end of a request of this cluster. A request that failed ends the process.
  const RequestTrace& Finish(LoadCall& call);
  double start_seconds() const { return start_seconds_; }
  // For an error message: the state of each worker, the hand-offs that fail, the joins that were
  // refused, and the processes that ended.
  std::string Describe();

 private:
  double start_seconds_ = 0;
  std::vector<std::unique_ptr<LocalCluster>> clusters_;
  std::vector<std::unique_ptr<LoadClient>> clients_;
  size_t sent_ = 0;
};

}  // namespace baton
