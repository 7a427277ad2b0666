#include "cli/status_table.h"

#include <string_view>

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

// What a column shows that has no value.
constexpr std::string_view kNone = "-";

// Only the end that sends measures a rate.
std::string RateOf(const TransportSummary& transport) {
  const double rate = transport.gigabytes_per_second;
  return rate > 0 ? fmt::format("{:.2f}", rate) : std::string(kNone);
}

std::string AgeOfOldest(const TransportSummary& transport) {
  return transport.open > 0 ? FormatMillis(transport.oldest_ms) : std::string(kNone);
}

std::vector<std::string> WorkerRow(const WorkerSummary& worker) {
  return {worker.id,
          worker.roles,
          worker.device + (worker.deterministic ? "" : " (not deterministic)"),
          worker.version,
          worker.state,
          fmt::format("{}", worker.running),
          fmt::format("{}", worker.waiting),
          fmt::format("{}", worker.awaiting_kv),
          UsedBlocks(worker),
          Percent(worker.cache_hit_rate),
          worker.draft_acceptance ? Percent(*worker.draft_acceptance) : std::string(kNone),
          fmt::format("{:.0f}", worker.prompt_tokens_per_second),
          fmt::format("{:.0f}", worker.output_tokens_per_second),
          FormatMillis(worker.heartbeat_age_ms),
          worker.http_address};
}

// The ranks of the workers that have several.
std::string FormatRanks(const std::vector<WorkerSummary>& workers) {
  std::vector<std::vector<std::string>> rows = {{"WORKER", "RANK", "STEP", "EXCHANGE"}};
  for (const auto& worker : workers) {
    for (size_t rank = 0; worker.ranks.size() > 1 && rank < worker.ranks.size(); ++rank) {
      const RankSummary& summary = worker.ranks[rank];
      rows.push_back(
          {worker.id,
           fmt::format("{}", rank),
           FormatMillis(summary.step_ms),
           summary.exchange_ms ? FormatMillis(*summary.exchange_ms) : std::string(kNone)});
    }
  }
  return rows.size() == 1 ? "" : "\n" + FormatTable(rows);
}

// The cache groups of the workers whose layers do not all keep the same.
std::string FormatCacheGroups(const std::vector<WorkerSummary>& workers) {
  std::vector<std::vector<std::string>> rows = {
      {"WORKER", "CACHE GROUP", "LAYERS", "BLOCK OR STATE", "BLOCKS HELD"}};
  for (const auto& worker : workers) {
    if (worker.cache_groups.size() < 2) continue;
    for (const CacheGroupSummary& group : worker.cache_groups) {
      rows.push_back({worker.id,
                      group.name,
                      fmt::format("{}", group.layers),
                      FormatBytes(group.bytes),
                      fmt::format("{}", group.blocks_held)});
    }
  }
  return rows.size() == 1 ? "" : "\n" + FormatTable(rows);
}

std::string FormatFailingPairs(const std::vector<FailingPairSummary>& pairs) {
  if (pairs.empty()) return "";
  std::vector<std::vector<std::string>> rows = {
      {"HAND-OFFS FAIL FROM", "TO", "IN A ROW", "LAST", "NEXT TRY", "BECAUSE"}};
  for (const FailingPairSummary& pair : pairs) {
    rows.push_back({pair.prefill,
                    pair.decode,
                    fmt::format("{}", pair.failures),
                    FormatMillis(pair.age_ms),
                    pair.avoided_ms > 0 ? "in " + FormatMillis(pair.avoided_ms) : "now",
                    pair.reason});
  }
  return "\n" + FormatTable(rows);
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

std::string FormatRefusedPeers(const std::vector<RefusedPeerSummary>& refused) {
  if (refused.empty()) return "";
  std::vector<std::vector<std::string>> rows = {
      {"NO PROOF AT", "FROM", "TIMES", "LAST", "BECAUSE"}};
  for (const auto& peer : refused) {
    rows.push_back({peer.port,
                    peer.address,
                    fmt::format("{}", peer.refusals),
                    FormatMillis(peer.age_ms),
                    peer.reason});
  }
  return "\n" + FormatTable(rows);
}

std::string FormatCallers(const std::vector<CallerSummary>& callers) {
  if (callers.empty()) return "";
  std::vector<std::vector<std::string>> rows = {
      {"TENANT", "KEY", "RUN", "REQUESTS", "TOKENS", "REFUSED", "ERRORS"}};
  for (const CallerSummary& caller : callers) {
    const size_t slash = caller.id.rfind('/');
    int64_t refused = 0;
    std::string errors;
    for (const auto& [kind, count] : caller.errors) {
      if (kind == "RESOURCE_EXHAUSTED") refused = count;
      errors += fmt::format("{}{} {}", errors.empty() ? "" : ", ", count, kind);
    }
    rows.push_back({caller.id.substr(0, slash),
                    slash == std::string::npos ? "" : caller.id.substr(slash + 1),
                    fmt::format("{}", caller.running),
                    fmt::format("{}", caller.requests),
                    fmt::format("{}", caller.tokens),
                    fmt::format("{}", refused),
                    errors});
  }
  return "\n" + FormatTable(rows);
}

std::string FormatReplays(const std::optional<ReplaySummary>& replays) {
  if (!replays.has_value()) return "";
  std::string skipped;
  for (const auto& [reason, count] : replays->skipped) {
    if (count > 0) skipped += fmt::format("{}{} {}", skipped.empty() ? "" : ", ", count, reason);
  }
  return fmt::format("replays of {:g}%: {} equal, {} different, {} running, {} waiting{}\n",
                     100 * replays->sample,
                     replays->checked,
                     replays->mismatches,
                     replays->running,
                     replays->waiting,
                     skipped.empty() ? "" : " · skipped: " + skipped);
}

// The tables below those of the workers.
std::string FormatPeople(const ClusterSummary& cluster) {
  return FormatCallers(cluster.callers) + FormatRefused(cluster.refused) +
         FormatRefusedPeers(cluster.refused_peers);
}

}  // namespace

std::string FormatCluster(const ClusterSummary& cluster) {
  std::string text = fmt::format(
      "router {} {} · {} · up {} · {} running, {} waiting, {} ended, {} failed, {} retried\n"
      "TTFT p50 {} p99 {} · TPOT p50 {} p99 {}\n",
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
  if (cluster.stalled_seconds > 0) {
    text += fmt::format(
        "STALLED: requests have waited for {} while nothing ran on any worker; the router's log "
        "says who waits\n",
        FormatDuration(cluster.stalled_seconds));
  }
  text += FormatReplays(cluster.replays) + "\n";
  if (cluster.workers.empty()) {
    return text + "no worker has joined\n" + FormatPeople(cluster);
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
                                                    "DRAFTS",
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
                           RateOf(transport)});
    }
  }
  text += FormatTable(workers) + FormatRanks(cluster.workers) + FormatCacheGroups(cluster.workers);
  if (transfers.size() > 1) text += "\n" + FormatTable(transfers);
  return text + FormatFailingPairs(cluster.failing_pairs) + FormatPeople(cluster);
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
                      AgeOfOldest(transport),
                      fmt::format("{}", transport.transfers),
                      fmt::format("{}", transport.writes),
                      FormatBytes(transport.bytes),
                      RateOf(transport),
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
