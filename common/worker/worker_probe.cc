#include "common/worker/worker_probe.h"

#include "common/worker/cache_group_loads.h"

namespace baton {
namespace {

constexpr const char* kHandoffs = "baton_handoffs_total";
constexpr const char* kHandoffsHelp = "KV hand-offs that ended, by outcome.";

}  // namespace

WorkerProbe::WorkerProbe(MetricsRegistry& metrics)
    : metrics_(metrics),
      running_(
          metrics.AddGauge("baton_worker_sequences_running", "Sequences that are being computed.")),
      waiting_(metrics.AddGauge("baton_worker_sequences_waiting",
                                "Sequences that wait to be scheduled, for blocks or for KV.")),
      utilization_(metrics.AddGauge("baton_kv_cache_utilization",
                                    "Share of the KV blocks that live requests hold, 0 to 1.")),
      block_tokens_(metrics.AddGauge("baton_kv_block_tokens", "Tokens per KV block.")),
      blocks_(metrics.AddGauge("baton_kv_blocks", "KV blocks in the arena.")),
      leaked_blocks_(metrics.AddGauge("baton_kv_leaked_blocks",
                                      "KV blocks that are neither free nor owned; must be 0.")),
      quarantined_blocks_(metrics.AddGauge("baton_kv_quarantined_blocks",
                                           "KV blocks in quarantine: blocks of failed hand-offs "
                                           "that the peer may still read or write. Alert when not "
                                           "0.")),
      stalled_(metrics.AddGauge("baton_worker_stalled_seconds",
                                "How long requests have waited in the queue while nothing ran on "
                                "this worker; 0 below 5 s. On a prefill worker it means that "
                                "decode workers have no room for its prompts.")),
      prompt_tokens_(
          metrics.AddCounter("baton_prompt_tokens_computed_total", "Prompt tokens computed.")),
      cached_tokens_(metrics.AddCounter("baton_prompt_tokens_cached_total",
                                        "Prompt tokens found in the prefix cache.")),
      output_tokens_(metrics.AddCounter("baton_output_tokens_total", "Tokens generated.")),
      drafts_(metrics.AddCounter("baton_drafts_total",
                                 "Guessed tokens that steps verified (engine.lookup_drafts).")),
      accepted_drafts_(
          metrics.AddCounter("baton_drafts_accepted_total", "Guessed tokens that became output.")),
      preemptions_(metrics.AddCounter("baton_preemptions_total",
                                      "Sequences preempted because KV blocks ran out.")),
      bubble_(metrics.AddCounter("baton_engine_pipeline_bubble_seconds_total",
                                 "Time in which the first pipeline stage waited for later stages "
                                 "and had nothing to compute, while requests were running. Always "
                                 "0 with one stage.")),
      requests_(metrics,
                "baton_worker_requests_total",
                "Requests that ended on this worker, by outcome: done, cancelled, invalid, refused "
                "(no room), deadline, failed."),
      handoffs_done_(metrics.AddCounter(kHandoffs, kHandoffsHelp, {{"outcome", "committed"}})),
      handoffs_failed_(metrics.AddCounter(kHandoffs, kHandoffsHelp, {{"outcome", "failed"}})),
      handoffs_refused_(metrics.AddCounter(kHandoffs, kHandoffsHelp, {{"outcome", "refused"}})),
      handoffs_not_needed_(
          metrics.AddCounter(kHandoffs, kHandoffsHelp, {{"outcome", "not_needed"}})),
      rejected_(metrics.AddCounter("baton_kv_rejected_messages_total",
                                   "Messages of peers about KV hand-offs that this worker does not "
                                   "have, for example because they have ended; it refused them.")),
      ttft_(metrics.AddHistogram("baton_worker_ttft_seconds",
                                 "Time from arrival at this worker to the first token.",
                                 LatencyBuckets())),
      tpot_(metrics.AddHistogram("baton_worker_tpot_seconds",
                                 "Mean time per token after the first on this worker.",
                                 ShortLatencyBuckets())),
      queue_(metrics.AddHistogram("baton_worker_queue_seconds",
                                  "Time from arrival at this worker to the first step.",
                                  LatencyBuckets())),
      prefill_(metrics.AddHistogram("baton_worker_prefill_seconds",
                                    "Time from the first step on this worker to the first token.",
                                    LatencyBuckets())),
      transfer_(metrics.AddHistogram(
          "baton_worker_transfer_seconds",
          "Time from the last prompt chunk ready to KV committed, measured by the sender.",
          ShortLatencyBuckets())) {}

WorkerProbe::~WorkerProbe() {
  Detach();
}

void WorkerProbe::Attach(const Engine& engine, const Executor& executor) {
  metrics_
      .AddGauge("baton_worker_info",
                "Always 1. The label `device` is the worker's device.",
                {{"device", executor.device_name()}})
      .Set(1);
  block_tokens_.Set(executor.kv_layout().block_tokens);
  update_ = metrics_.AddUpdate([this, &engine, &layout = executor.kv_layout()] {
    const EngineStats stats = engine.Stats();
    Update(stats);
    for (const CacheGroupLoad& group : CacheGroupLoads(layout, stats.blocks_by_group)) {
      UpdateGroup(group);
    }
    UpdatePeers();
  });
  attached_ = true;
}

void WorkerProbe::Detach() {
  if (attached_) metrics_.RemoveUpdate(update_);
  attached_ = false;
}

void WorkerProbe::Update(const EngineStats& stats) {
  running_.Set(stats.running);
  waiting_.Set(stats.waiting + stats.awaiting_kv);
  const double total = stats.blocks_total;
  utilization_.Set(total > 0 ? (total - stats.blocks_free) / total : 0);
  blocks_.Set(total);
  leaked_blocks_.Set(stats.blocks_leaked);
  prompt_tokens_.RaiseTo(static_cast<double>(stats.prompt_tokens));
  cached_tokens_.RaiseTo(static_cast<double>(stats.cached_tokens));
  output_tokens_.RaiseTo(static_cast<double>(stats.output_tokens));
  drafts_.RaiseTo(static_cast<double>(stats.drafts));
  accepted_drafts_.RaiseTo(static_cast<double>(stats.accepted_drafts));
  preemptions_.RaiseTo(static_cast<double>(stats.preemptions));
  bubble_.RaiseTo(stats.bubble_seconds);
  for (size_t rank = 0; rank < stats.ranks.size(); ++rank) UpdateRank(rank, stats.ranks[rank]);
}

void WorkerProbe::UpdateGroup(const CacheGroupLoad& group) {
  const MetricLabels labels = {{"group", group.name}};
  const auto gauge = [&](const char* name, const char* help, double value) {
    metrics_.AddGauge(name, help, labels).Set(value);
  };
  gauge("baton_kv_group_layers",
        "Layers of the model that keep the KV of all tokens (full), that of a window, a latent, or "
        "a state.",
        group.layers);
  gauge("baton_kv_group_bytes",
        "Bytes of a block of tokens in these layers, or of a state, of the whole model.",
        static_cast<double>(group.bytes));
  gauge("baton_kv_group_blocks",
        "Arena blocks that live requests hold for these layers.",
        static_cast<double>(group.blocks_held));
}

void WorkerProbe::UpdateRank(size_t rank, const RankTimes& times) {
  const MetricLabels labels = {{"rank", fmt::format("{}", rank)}};
  const auto counter = [&](const char* name, const char* help, double total) {
    metrics_.AddCounter(name, help, labels).RaiseTo(total);
  };
  counter("baton_rank_steps_total", "Steps of the rank.", static_cast<double>(times.steps));
  counter("baton_rank_step_seconds_total",
          "Time that the rank has spent on steps, exchanges included.",
          times.step_seconds);
  if (!times.exchange_seconds) return;
  counter("baton_rank_exchange_seconds_total",
          "Time of the rank's steps in exchanges with other ranks, waits for these ranks included. "
          "Absent where the device does not tell.",
          *times.exchange_seconds);
}

void WorkerProbe::RequestEnded(const BookEntry& entry,
                               const Status& status,
                               const RequestTimes& times) {
  const bool complete = entry.complete && status.code() == StatusCode::kCancelled;
  requests_.Add(complete ? RequestOutcome::kDone : OutcomeOf(status));
  if (!status.ok() && !complete) return;
  if (entry.kind != RequestKind::kDecode) {
    if (!complete) {
      queue_.Observe(ToSeconds(times.queued));
      prefill_.Observe(ToSeconds(times.prefill));
    }
    if (entry.tokens > 0) ttft_.Observe(ToSeconds(entry.first_token - entry.arrival));
  }
  if (entry.tokens > 1) {
    tpot_.Observe(ToSeconds(entry.last_token - entry.first_token) / (entry.tokens - 1));
  }
}

void WorkerProbe::SetPeers(const std::map<WorkerId, PeerTraffic>& peers,
                           uint64_t rejected_messages) {
  std::lock_guard lock(peers_mutex_);
  peers_ = peers;
  rejected_messages_ = rejected_messages;
}

void WorkerProbe::UpdatePeers() {
  std::lock_guard lock(peers_mutex_);
  for (const auto& [peer, traffic] : peers_) UpdatePeer(peer, traffic);
  rejected_.RaiseTo(static_cast<double>(rejected_messages_));
}

void WorkerProbe::UpdatePeer(const WorkerId& peer, const PeerTraffic& traffic) {
  const MetricLabels labels = {{"peer", peer.value()}};
  const auto gauge = [&](const char* name, const char* help, double value) {
    metrics_.AddGauge(name, help, labels).Set(value);
  };
  const auto counter = [&](const char* name, const char* help, uint64_t total) {
    metrics_.AddCounter(name, help, labels).RaiseTo(static_cast<double>(total));
  };
  gauge("baton_kv_peer_handoffs", "KV hand-offs under way with the peer.", traffic.open);
  gauge("baton_kv_peer_oldest_handoff_seconds",
        "Age of the oldest KV hand-off under way with the peer, in seconds.",
        traffic.oldest_ms / 1e3);
  gauge("baton_kv_peer_quarantined_blocks",
        "KV blocks in quarantine that the peer may still read or write. Alert when not 0.",
        traffic.quarantined_blocks);
  gauge(
      "baton_kv_peer_bytes_per_second",
      "Latest rate of KV to the peer while bytes moved, hand-offs under way included, in bytes per "
      "second. 0: not known, or no bytes moved for a minute.",
      traffic.bytes_per_second);
  counter("baton_kv_peer_bytes_total",
          "Bytes of KV that committed hand-offs moved to or from the peer.",
          traffic.bytes);
  counter("baton_kv_peer_writes_total", "Write operations to or from the peer.", traffic.writes);
  counter("baton_kv_peer_resent_blocks_total",
          "KV blocks that were written to the peer again, because they arrived damaged.",
          traffic.resent_blocks);
  counter("baton_kv_peer_checksum_errors_total",
          "KV blocks from the peer that arrived damaged.",
          traffic.checksum_errors);
  counter("baton_kv_peer_fences_total",
          "Drains of KV writes to the peer that only a fence ended.",
          traffic.fences);
  const MetricLabels present = {
      {"peer", peer.value()}, {"transport", traffic.transport}, {"not_taken", traffic.not_taken}};
  const auto in_use = [&](const MetricLabels& transport, double value) {
    metrics_
        .AddGauge(
            "baton_kv_peer_transport",
            "1 for the transport in use with the peer. The label not_taken says why preferred "
            "transports are not in use.",
            transport)
        .Set(value);
  };
  MetricLabels& known = transports_[peer];
  if (!known.empty() && known != present) in_use(known, 0);
  known = present;
  in_use(present, 1);
}

void WorkerProbe::HandoffCommitted(Duration transfer,
                                   uint64_t bytes,
                                   const std::string& transport) {
  handoffs_done_.Add();
  if (!transport.empty()) {
    metrics_
        .AddCounter("baton_kv_transferred_bytes_total",
                    "Bytes of KV that hand-offs sent or received.",
                    {{"transport", transport}})
        .Add(static_cast<double>(bytes));
  }
  if (transfer > Duration::zero()) transfer_.Observe(ToSeconds(transfer));
}

}  // namespace baton
