#include "router/worker_cost.h"

#include <algorithm>
#include <cmath>

namespace baton::router {
namespace {

const EngineStats& StatsOf(const Candidate& worker) {
  return worker.worker->load.stats;
}

int32_t StepTokens(const Candidate& worker) {
  return std::max(1, worker.worker->info.max_step_tokens);
}

// `tokens` computed one after another from position `context` on.
double ComputeMs(const Candidate& worker, double tokens, double context) {
  const EngineStats& stats = StatsOf(worker);
  const double steps = (tokens + StepTokens(worker) - 1) / StepTokens(worker);
  return stats.step_ms_base * steps + stats.step_ms_per_token * tokens +
         stats.step_ms_per_token_context * tokens * (context + tokens / 2);
}

}  // namespace

double PrefillMs(const Candidate& worker, int32_t prompt_tokens) {
  return ComputeMs(worker, prompt_tokens - worker.cached_tokens, worker.cached_tokens);
}

double QueueMs(const Candidate& worker) {
  return worker.load.queued_tokens == 0 ? 0 : ComputeMs(worker, worker.load.queued_tokens, 0);
}

double StepMs(const Candidate& worker, int32_t prompt_tokens, int32_t samples) {
  const EngineStats& stats = StatsOf(worker);
  const double sequences = worker.load.requests + samples;
  const double context = static_cast<double>(worker.load.context_tokens) +
                         static_cast<double>(prompt_tokens) * samples;
  return stats.step_ms_base + stats.step_ms_per_token * sequences +
         stats.step_ms_per_token_context * context;
}

double RoomMs(const Candidate& worker, const RouteQuery& query) {
  const WorkerInfo& info = worker.worker->info;
  const double step = StepMs(worker, query.prompt_tokens, query.samples);
  const double block_tokens = std::max(1, info.block_tokens);
  const double needed = (query.prompt_tokens - worker.cached_tokens) / block_tokens + 1;
  const double requests = std::max(1, worker.load.requests);
  double waiting_for = 0;  // requests that must end first
  if (needed > worker.load.blocks_free) {
    const double each = std::max(1.0, (info.blocks - worker.load.blocks_free) / requests);
    waiting_for = std::ceil((needed - worker.load.blocks_free) / each);
  }
  waiting_for = std::max<double>(
      waiting_for, worker.load.requests + query.samples - std::max(1, info.max_sequences));
  // Requests end evenly spread over the time that one of them takes.
  return waiting_for <= 0 ? 0 : waiting_for / requests * query.expected_output * step;
}

double TransferMs(const Candidate& decode, const RouteQuery& query) {
  if (query.transfer_gbps <= 0) return 0;
  return (query.prompt_tokens - decode.cached_tokens) * query.kv_bytes_per_token /
         (query.transfer_gbps * 1e6);
}

bool MayServeLocally(const Candidate& decode, const RouteQuery& query) {
  const int32_t uncached = query.prompt_tokens - decode.cached_tokens;
  return uncached <= query.local_tokens && uncached <= decode.cached_tokens;
}

Route MakeRoute(const Candidate* prefill, const Candidate& decode, const RouteQuery& query) {
  if (prefill == nullptr || prefill->slot == decode.slot || MayServeLocally(decode, query)) {
    return {nullptr, &decode, QueueMs(decode) + PrefillMs(decode, query.prompt_tokens)};
  }
  return {prefill, &decode, QueueMs(*prefill) + PrefillMs(*prefill, query.prompt_tokens)};
}

double RelativeLoad(const Candidate& worker) {
  return static_cast<double>(worker.load.requests) / std::max(1, worker.worker->info.max_sequences);
}

}  // namespace baton::router
