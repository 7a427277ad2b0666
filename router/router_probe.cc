#include "router/router_probe.h"

#include "common/base/quantile.h"

namespace baton::router {
namespace {

constexpr const char* kWorkers = "baton_router_workers";
constexpr const char* kWorkersHelp = "Workers joined to this router, by state.";

double Seconds(double ms) {
  return ms / 1000;
}

}  // namespace

RouterProbe::RouterProbe(MetricsRegistry& registry)
    : registry_(registry),
      running_(registry.AddGauge("baton_router_requests_running",
                                 "Requests that have a first token and have not ended.")),
      waiting_(registry.AddGauge("baton_router_requests_waiting",
                                 "Requests that have no first token yet.")),
      index_entries_(
          registry.AddGauge("baton_router_index_entries", "Block hashes in the prefix index.")),
      failing_pairs_(registry.AddGauge("baton_router_failing_pairs",
                                       "Pairs of a prefill and a decode worker whose latest KV "
                                       "hand-off failed; `baton status` shows why.")),
      stalled_(registry.AddGauge("baton_router_stalled_seconds",
                                 "How long requests have waited while nothing ran; 0 below 5 s. "
                                 "Alert when not 0: the log says who waits.")),
      ready_(registry.AddGauge(kWorkers, kWorkersHelp, {{"state", "ready"}})),
      suspect_(registry.AddGauge(kWorkers, kWorkersHelp, {{"state", "suspect"}})),
      lost_(registry.AddGauge(kWorkers, kWorkersHelp, {{"state", "lost"}})),
      draining_(registry.AddGauge(kWorkers, kWorkersHelp, {{"state", "draining"}})),
      requests_(
          registry,
          "baton_router_requests_total",
          "Requests that have ended, by outcome: done, cancelled by the client, invalid (an "
          "error of the client), refused (overload), deadline (the time limit that the client "
          "set), failed (any other error, also default_timeout_seconds)."),
      retries_(registry.AddCounter("baton_router_retries_total", "Dispatches after the first.")),
      refusals_(registry.AddCounter("baton_router_handoff_refusals_total",
                                    "Refused hand-offs: the decode worker was full or could not be "
                                    "reached.")),
      served_alone_(registry.AddCounter("baton_router_served_alone_total",
                                        "Requests that one worker served alone, without a "
                                        "hand-off.")),
      generated_tokens_(registry.AddCounter("baton_router_generated_tokens_total",
                                            "Tokens generated for requests that have ended.")),
      cached_tokens_(registry.AddCounter(
          "baton_router_cached_prompt_tokens_total",
          "Prompt tokens of ended requests that were found in a prefix cache.")),
      ttft_(registry.AddHistogram("baton_router_ttft_seconds",
                                  "Time from the arrival of a request to its first token.",
                                  LatencyBuckets())),
      tpot_(registry.AddHistogram("baton_router_tpot_seconds",
                                  "Mean time per token after the first, one value per request.",
                                  ShortLatencyBuckets())),
      itl_(registry.AddHistogram("baton_router_itl_seconds",
                                 "Inter-token latency: time between two tokens of a sample, as "
                                 "they are handed to the client.",
                                 GapBuckets())),
      request_(registry.AddHistogram(
          "baton_router_request_seconds",
          "Time from arrival until the last token is handed to the client, of requests that are "
          "done.",
          RequestBuckets())),
      queue_(registry.AddHistogram("baton_router_queue_seconds",
                                   "From the arrival of a request at a worker to its first step.",
                                   LatencyBuckets())),
      prefill_(registry.AddHistogram("baton_router_prefill_seconds",
                                     "Time from the first step of a request to its first token.",
                                     LatencyBuckets())),
      transfer_(
          registry.AddHistogram("baton_router_transfer_seconds",
                                "From the end of the last prompt chunk to the commit of the KV.",
                                ShortLatencyBuckets())),
      replays_checked_(registry.AddCounter(
          "baton_replay_checked_total",
          "Finished requests that were replayed on other workers with equal tokens.")),
      replay_mismatches_(registry.AddCounter(
          "baton_replay_mismatches_total",
          "Finished requests whose replay on other workers gave different tokens; the log says "
          "which workers.")),
      replays_cached_tokens_(
          registry.AddCounter("baton_replay_cached_prompt_tokens_total",
                              "Prompt tokens of replays that were found in a prefix cache.")) {
  for (int i = 0; i < kReplaySkips; ++i) {
    replays_skipped_.push_back(registry.AddCounter(
        "baton_replay_skipped_total",
        "Finished requests of the sample that were not compared, by reason: no_other_worker, busy, "
        "not_deterministic, too_long (replay.max_tokens), worker_left (before the request ended), "
        "failed.",
        {{"reason", std::string(Name(static_cast<ReplaySkip>(i)))}}));
  }
}

void RouterProbe::OnReplay(const ReplayResult& result) {
  if (result.skipped.has_value()) {
    return replays_skipped_[static_cast<size_t>(*result.skipped)].Add();
  }
  (result.mismatch.has_value() ? replay_mismatches_ : replays_checked_).Add();
  replays_cached_tokens_.Add(result.cached_tokens);
}

ReplayCounts RouterProbe::replays() const {
  ReplayCounts counts;
  counts.checked = static_cast<int64_t>(replays_checked_.value());
  counts.mismatches = static_cast<int64_t>(replay_mismatches_.value());
  for (size_t i = 0; i < counts.skipped.size(); ++i) {
    counts.skipped[i] = static_cast<int64_t>(replays_skipped_[i].value());
  }
  return counts;
}

void RouterProbe::SetGauges(const RouterGauges& gauges) {
  running_.Set(gauges.running);
  waiting_.Set(gauges.waiting);
  index_entries_.Set(static_cast<double>(gauges.index_entries));
  failing_pairs_.Set(static_cast<double>(gauges.failing_pairs));
  stalled_.Set(gauges.stalled_seconds);
  ready_.Set(gauges.workers_ready);
  suspect_.Set(gauges.workers_suspect);
  lost_.Set(gauges.workers_lost);
  draining_.Set(gauges.workers_draining);
}

void RouterProbe::OnOutcome(const Outcome& outcome) {
  const RequestAccount& account = outcome.account;
  CountEnd(outcome.status, outcome.own_deadline);
  if (account.attempts > 1) retries_.Add(account.attempts - 1);
  if (account.refusals > 0) refusals_.Add(account.refusals);
  if (!account.decode_worker.empty() && account.prefill_worker == account.decode_worker) {
    served_alone_.Add();
  }
  generated_tokens_.Add(account.generated_tokens);
  cached_tokens_.Add(account.cached_tokens);
  if (!outcome.status.ok()) return;
  ttft_.Observe(Seconds(account.ttft_ms));
  if (account.tpot_ms > 0) tpot_.Observe(Seconds(account.tpot_ms));
  queue_.Observe(Seconds(account.queue_ms));
  prefill_.Observe(Seconds(account.prefill_ms));
  if (!account.transport.empty()) transfer_.Observe(Seconds(account.transfer_ms));

  std::lock_guard lock(mutex_);
  const size_t at = next_++ % kRecent;
  if (recent_ttft_.size() <= at) {
    recent_ttft_.resize(at + 1);
    recent_tpot_.resize(at + 1);
  }
  recent_ttft_[at] = account.ttft_ms;
  recent_tpot_[at] = account.tpot_ms;
}

LatencyPercentiles RouterProbe::latencies() const {
  std::vector<double> ttft;
  std::vector<double> tpot;
  {
    std::lock_guard lock(mutex_);
    ttft = recent_ttft_;
    tpot = recent_tpot_;
  }
  std::erase(tpot, 0);  // answers of one token have no TPOT
  return {Quantile(ttft, 0.5), Quantile(ttft, 0.99), Quantile(tpot, 0.5), Quantile(tpot, 0.99)};
}

void RouterProbe::OnRejected(const Status& status) {
  CountEnd(status, true);
}

void RouterProbe::OnTokens(Duration gap, int32_t count) {
  itl_.Observe(ToSeconds(gap));
  for (int32_t i = 1; i < count; ++i) itl_.Observe(0);
}

// A request that the router's own default ends after a long time tells of a fault of the cluster.
void RouterProbe::CountEnd(const Status& status, bool own_deadline) {
  const RequestOutcome outcome = OutcomeOf(status);
  const bool default_passed = outcome == RequestOutcome::kDeadline && !own_deadline;
  requests_.Add(default_passed ? RequestOutcome::kFailed : outcome);
  if (status.ok()) return;
  registry_
      .AddCounter("baton_router_errors_total",
                  "Requests that ended with an error, by its code.",
                  {{"code", std::string(absl::StatusCodeToString(status.code()))}})
      .Add();
}

}  // namespace baton::router
