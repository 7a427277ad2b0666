#include "bench/serving/cluster_side.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "cli/cluster_client.h"
#include "common/base/check.h"
#include "common/base/clock.h"

namespace baton {
namespace {

constexpr auto kStartLimit = std::chrono::seconds(120);
constexpr auto kDrainLimit = std::chrono::seconds(20);

// The workers that these devices hold: at least one, as devices may be shared.
int Count(const std::vector<std::string>& devices, const RankCounts& ranks) {
  return std::max(1, static_cast<int>(devices.size()) / ranks.ranks());
}

// The workers of a cluster, without the decode worker of kTurns. `unified`: which unified worker.
WorkerCounts WorkersOf(const SideOptions& options, SideKind kind, int unified) {
  WorkerCounts workers;
  if (kind == SideKind::kSplit) {
    workers.prefill_devices = options.prefill_devices;
    workers.prefill_ranks = options.prefill_ranks;
    workers.prefill = Count(options.prefill_devices, options.prefill_ranks);
    workers.decode_devices = options.decode_devices;
    workers.decode_ranks = options.decode_ranks;
    workers.decode = Count(options.decode_devices, options.decode_ranks);
    return workers;
  }
  workers.unified = true;
  workers.decode = 1;
  workers.decode_ranks = kind == SideKind::kTurns ? options.prefill_ranks : options.unified_ranks;
  const std::vector<std::string>& devices = options.unified_devices;
  const auto ranks = static_cast<size_t>(workers.decode_ranks.ranks());
  for (size_t rank = 0; rank < ranks; ++rank) {
    const size_t index = static_cast<size_t>(unified) * ranks + rank;
    workers.decode_devices.push_back(devices[index % devices.size()]);
  }
  return workers;
}

std::string LogFolder(const SideOptions& options, SideKind kind, int unified) {
  if (options.log_folder.empty()) return "";
  if (kind == SideKind::kSplit) return options.log_folder + "/split";
  if (kind == SideKind::kTurns) return options.log_folder + "/turns";
  return fmt::format("{}/unified-{}", options.log_folder, unified);
}

LocalClusterOptions ClusterOf(const SideOptions& options, SideKind kind, int unified) {
  LocalClusterOptions cluster;
  cluster.binary_folder = BinaryFolder();
  cluster.model = options.model;
  cluster.log_folder = LogFolder(options, kind, unified);
  if (!cluster.log_folder.empty()) std::filesystem::create_directories(cluster.log_folder);
  cluster.workers = WorkersOf(options, kind, unified);
  if (kind == SideKind::kSplit) cluster.decode_set = options.decode_set;
  if (kind == SideKind::kTurns) {
    cluster.router_set = {"policy=round_robin"};
    // The two workers may share GPUs, and each takes its part of the memory that is free when it
    // starts. Has no effect where options.worker_set sets the size of the arenas.
    cluster.worker_set = {"engine.kv_memory_fraction=0.45"};
  }
  if (kind != SideKind::kUnified && !options.transport.empty()) {
    cluster.worker_set.push_back("transfer.require_transport=" + options.transport);
  }
  if (options.dummy) {
    cluster.worker_set.push_back("model.load_format=dummy");
    cluster.router_set.push_back("model.load_format=dummy");
  }
  cluster.worker_set.insert(
      cluster.worker_set.end(), options.worker_set.begin(), options.worker_set.end());
  return cluster;
}

// The decode worker of kTurns.
WorkerPlan DecodeWorkerOf(const SideOptions& options) {
  WorkerCounts workers;
  workers.decode = 1;
  workers.decode_ranks = options.decode_ranks;
  workers.decode_devices = options.decode_devices;
  WorkerPlan plan = PlanWorkers(workers).front();
  plan.name = kDecodeWorker;
  return plan;
}

}  // namespace

Side::Side(const SideOptions& options, SideKind kind) {
  const int count =
      kind == SideKind::kUnified ? Count(options.unified_devices, options.unified_ranks) : 1;
  const Time start = SteadyClock().Now();
  for (int i = 0; i < count; ++i) {
    auto started = LocalCluster::Start(ClusterOf(options, kind, i), kStartLimit);
    BATON_CHECK(started.ok(), "{}", Message(started.status()));
    clusters_.push_back(*std::move(started));
  }
  if (kind == SideKind::kTurns) {
    LocalCluster& cluster = *clusters_.front();
    Status joined = cluster.AddWorker(DecodeWorkerOf(options), kStartLimit);
    if (joined.ok()) joined = cluster.WaitJoined(2, kStartLimit);
    BATON_CHECK(joined.ok(), "{}", Message(joined));
  }
  start_seconds_ = ToSeconds(SteadyClock().Now() - start);
  for (const std::unique_ptr<LocalCluster>& cluster : clusters_) {
    clients_.push_back(std::make_unique<LoadClient>(cluster->server(), options.vocabulary));
  }
}

Side::~Side() {
  for (const std::unique_ptr<LocalCluster>& cluster : clusters_) cluster->Drain(kDrainLimit);
}

const RequestTrace& Side::Finish(LoadCall& call) {
  const RequestTrace& trace = call.Await();
  BATON_CHECK(trace.status.ok(), "a request failed: {}{}", Message(trace.status), Describe());
  return trace;
}

std::string Side::Describe() {
  std::string text;
  for (const std::unique_ptr<LocalCluster>& cluster : clusters_) {
    for (const std::string& ended : cluster->TakeExits()) text += "\n  " + ended;
    const auto status = ClusterClient(cluster->admin()).GetStatus();
    if (!status.ok()) {
      text += fmt::format("\n  the router does not answer: {}", Message(status.status()));
      continue;
    }
    for (const WorkerSummary& worker : status->workers) {
      text += fmt::format("\n  worker {} ({}) is {}; it has {} of {} KV blocks free",
                          worker.id,
                          worker.roles,
                          worker.state,
                          worker.blocks_free,
                          worker.blocks_total);
    }
    for (const FailingPairSummary& pair : status->failing_pairs) {
      text += fmt::format("\n  {} hand-offs in a row from {} to {} failed: {}",
                          pair.failures,
                          pair.prefill,
                          pair.decode,
                          pair.reason);
    }
    for (const RefusedSummary& refused : status->refused) {
      text += fmt::format("\n  the router refused {}: {}", refused.worker, refused.reason);
    }
  }
  return text;
}

}  // namespace baton
