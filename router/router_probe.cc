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
      running_(registry.AddGauge("baton_requests_running", "Requests that have a first token.")),
      waiting_(registry.AddGauge("baton_requests_waiting", "Requests without a first token.")),
      index_entries_(
          registry.AddGauge("baton_router_index_entries", "Block hashes in the prefix index.")),
      ready_(registry.AddGauge(kWorkers, kWorkersHelp, {{"state", "ready"}})),
      suspect_(registry.AddGauge(kWorkers, kWorkersHelp, {{"state", "suspect"}})),
      lost_(registry.AddGauge(kWorkers, kWorkersHelp, {{"state", "lost"}})),
      draining_(registry.AddGauge(kWorkers, kWorkersHelp, {{"state", "draining"}})),
      requests_(registry.AddCounter("baton_requests_total", "Requests that have ended.")),
      failed_(registry.AddCounter("baton_requests_failed_total",
                                  "Requests that ended with an error, cancelled ones left out.")),
      retries_(registry.AddCounter("baton_router_retries_total", "Dispatches after the first.")),
      refusals_(registry.AddCounter("baton_router_handoff_refusals_total",
                                    "Hand-offs a decode worker refused for want of room.")),
      served_alone_(registry.AddCounter("baton_router_served_alone_total",
                                        "Requests whose prompt a decode worker computed itself.")),
      generated_tokens_(registry.AddCounter("baton_generated_tokens_total", "Tokens generated.")),
      cached_tokens_(registry.AddCounter("baton_cached_prompt_tokens_total",
                                         "Prompt tokens found in prefix caches.")),
      ttft_(
          registry.AddHistogram("baton_ttft_seconds", "Arrival to first token.", LatencyBuckets())),
      tpot_(registry.AddHistogram(
          "baton_tpot_seconds", "Time per token after the first.", ShortLatencyBuckets())),
      queue_(registry.AddHistogram(
          "baton_queue_seconds", "Waiting on the worker before the first step.", LatencyBuckets())),
      prefill_(registry.AddHistogram(
          "baton_prefill_seconds", "First step to first token.", LatencyBuckets())),
      transfer_(registry.AddHistogram("baton_transfer_seconds",
                                      "Last prompt chunk computed to KV committed.",
                                      ShortLatencyBuckets())) {}

void RouterProbe::SetGauges(const RouterGauges& gauges) {
  running_.Set(gauges.running);
  waiting_.Set(gauges.waiting);
  index_entries_.Set(static_cast<double>(gauges.index_entries));
  ready_.Set(gauges.workers_ready);
  suspect_.Set(gauges.workers_suspect);
  lost_.Set(gauges.workers_lost);
  draining_.Set(gauges.workers_draining);
}

void RouterProbe::OnOutcome(const Outcome& outcome) {
  const RequestAccount& account = outcome.account;
  requests_.Add();
  if (account.attempts > 1) retries_.Add(account.attempts - 1);
  if (account.refusals > 0) refusals_.Add(account.refusals);
  if (!account.decode_worker.empty() && account.prefill_worker == account.decode_worker) {
    served_alone_.Add();
  }
  generated_tokens_.Add(account.generated_tokens);
  cached_tokens_.Add(account.cached_tokens);
  if (!outcome.status.ok()) {
    CountError(outcome.status);
    return;
  }
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
  std::erase(tpot, 0);  // single tokens
  return {Quantile(ttft, 0.5), Quantile(ttft, 0.99), Quantile(tpot, 0.5), Quantile(tpot, 0.99)};
}

void RouterProbe::OnRejected(const Status& status) {
  requests_.Add();
  CountError(status);
}

void RouterProbe::CountError(const Status& status) {
  const std::string code(absl::StatusCodeToString(status.code()));
  registry_
      .AddCounter("baton_requests_refused_total",
                  "Requests that ended with an error, by code.",
                  {{"code", code}})
      .Add();
  if (status.code() != StatusCode::kCancelled) failed_.Add();
}

}  // namespace baton::router
