#include "cli/status_table.h"

#include "cli/format.h"

namespace baton {
namespace {

std::string Percent(double part) {
  return fmt::format("{:.0f}%", 100 * part);
}

std::string UsedBlocks(const WorkerSummary& worker) {
  const int used = worker.blocks_total - worker.blocks_free;
  const double part = worker.blocks_total > 0 ? double(used) / worker.blocks_total : 0;
  const std::string leaked =
      worker.blocks_leaked > 0 ? fmt::format(" LEAKED {}", worker.blocks_leaked) : "";
  const std::string quarantined = worker.blocks_quarantined > 0
                                      ? fmt::format(" QUARANTINED {}", worker.blocks_quarantined)
                                      : "";
  return fmt::format(
      "{}/{} ({}){}{}", used, worker.blocks_total, Percent(part), leaked, quarantined);
}

std::vector<std::string> WorkerRow(const WorkerSummary& worker) {
  return {worker.id,
          worker.roles,
          worker.device,
          worker.version,
          worker.state,
          fmt::format("{}", worker.running),
          fmt::format("{}", worker.waiting),
          fmt::format("{}", worker.awaiting_kv),
          UsedBlocks(worker),
          Percent(worker.cache_hit_rate),
          fmt::format("{:.0f}", worker.prompt_tokens_per_second),
          fmt::format("{:.0f}", worker.output_tokens_per_second),
          FormatMillis(worker.heartbeat_age_ms),
          worker.http_address};
}

std::string FormatRefused(const std::vector<RefusedSummary>& refused) {
  if (refused.empty()) return "";
  std::vector<std::vector<std::string>> rows = {{"REFUSED", "FROM", "ATTEMPTS", "LAST", "BECAUSE"}};
  for (const auto& join : refused) {
    rows.push_back({join.worker.empty() ? "?" : join.worker,
                    join.address,
                    fmt::format("{}", join.attempts),
                    FormatMillis(join.age_ms),
                    join.reason});
  }
  return "\n" + FormatTable(rows);
}

}  // namespace

std::string FormatCluster(const ClusterSummary& cluster) {
  std::string text = fmt::format(
      "router {} {} · {} · up {} · {} running, {} waiting, {} ended, {} failed, {} retried\n"
      "TTFT p50 {} p99 {} · TPOT p50 {} p99 {}\n\n",
      cluster.router,
      cluster.version,
      cluster.model.empty() ? "no model yet" : cluster.model,
      FormatDuration(cluster.uptime_seconds),
      cluster.running,
      cluster.waiting,
      cluster.total,
      cluster.failed,
      cluster.retries,
      FormatMillis(cluster.ttft_p50_ms),
      FormatMillis(cluster.ttft_p99_ms),
      FormatMillis(cluster.tpot_p50_ms),
      FormatMillis(cluster.tpot_p99_ms));
  if (cluster.workers.empty()) {
    return text + "no worker has joined\n" + FormatRefused(cluster.refused);
  }
  std::vector<std::vector<std::string>> workers = {{"WORKER",
                                                    "ROLES",
                                                    "DEVICE",
                                                    "VERSION",
                                                    "STATE",
                                                    "RUN",
                                                    "WAIT",
                                                    "KV-WAIT",
                                                    "BLOCKS",
                                                    "HITS",
                                                    "PROMPT/S",
                                                    "OUTPUT/S",
                                                    "SEEN",
                                                    "HTTP"}};
  std::vector<std::vector<std::string>> transfers = {
      {"WORKER", "PEER", "OVER", "TRANSFERS", "BYTES", "GB/S"}};
  for (const auto& worker : cluster.workers) {
    workers.push_back(WorkerRow(worker));
    for (const auto& transport : worker.transports) {
      transfers.push_back({worker.id,
                           transport.peer,
                           transport.transport,
                           fmt::format("{}", transport.transfers),
                           FormatBytes(transport.bytes),
                           fmt::format("{:.2f}", transport.gigabytes_per_second)});
    }
  }
  text += FormatTable(workers);
  if (transfers.size() > 1) text += "\n" + FormatTable(transfers);
  return text + FormatRefused(cluster.refused);
}

std::string FormatTransfers(const ClusterSummary& cluster) {
  std::vector<std::vector<std::string>> rows = {{"WORKER",
                                                 "PEER",
                                                 "OVER",
                                                 "OPEN",
                                                 "OLDEST",
                                                 "TRANSFERS",
                                                 "WRITES",
                                                 "BYTES",
                                                 "GB/S",
                                                 "RESENT",
                                                 "DAMAGED",
                                                 "FENCES",
                                                 "QUARANTINED",
                                                 "NOT TAKEN"}};
  for (const auto& worker : cluster.workers) {
    for (const auto& transport : worker.transports) {
      rows.push_back({worker.id,
                      transport.peer,
                      transport.transport,
                      fmt::format("{}", transport.open),
                      FormatMillis(transport.oldest_ms),
                      fmt::format("{}", transport.transfers),
                      fmt::format("{}", transport.writes),
                      FormatBytes(transport.bytes),
                      fmt::format("{:.2f}", transport.gigabytes_per_second),
                      fmt::format("{}", transport.resent_blocks),
                      fmt::format("{}", transport.checksum_errors),
                      fmt::format("{}", transport.fences),
                      fmt::format("{}", transport.quarantined_blocks),
                      transport.not_taken});
    }
  }
  if (rows.size() == 1) return "no KV was transferred\n";
  return FormatTable(rows);
}

}  // namespace baton
