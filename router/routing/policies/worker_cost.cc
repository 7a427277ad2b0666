#include "router/routing/policies/worker_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace baton::router {
namespace {

const EngineLoad& StatsOf(const Candidate& worker) {
  return worker.worker->load.engine;
}

int32_t StepTokens(const Candidate& worker) {
  return std::max(1, worker.worker->info.max_step_tokens);
}

// Whether the worker now limits prompt chunks for the inter-token latency of its sequences.
bool KeepsTarget(const Candidate& worker) {
  return worker.worker->info.itl_target > Duration::zero() && worker.load.requests > 0;
}

// The number of prompt tokens in one step when each costs `token_ms`. With an ITL target the rule
// is that of the engine (Scheduler::PromptBudget), whose minimum is one block.
double ChunkTokens(const Candidate& worker, double token_ms) {
  const double budget = StepTokens(worker);
  if (!KeepsTarget(worker) || token_ms <= 0) return budget;
  const WorkerInfo& info = worker.worker->info;
  const double least = std::clamp<double>(info.block_tokens, 1, budget);
  return std::clamp((ToMillis(info.itl_target) - StepMs(worker, 0, 0)) / token_ms, least, budget);
}

// Time to compute `tokens` prompt tokens with an average context of `context` tokens, at the speed
// of `stats`.
double ComputeMs(const Candidate& worker, const EngineLoad& stats, double tokens, double context) {
  if (tokens <= 0) return 0;
  const double token_ms = stats.PromptTokenMs(context);
  const double chunk = ChunkTokens(worker, token_ms);
  const double steps = (tokens + chunk - 1) / chunk;
  const double beside = KeepsTarget(worker) ? StepMs(worker, 0, 0) : StatsOf(worker).step_ms_base;
  return beside * steps + token_ms * tokens;
}

double QueueMs(const Candidate& worker, const EngineLoad& stats, int32_t prompt_tokens) {
  const auto queued = static_cast<double>(worker.load.queued_tokens);
  return ComputeMs(worker, stats, queued, std::min<double>(queued, prompt_tokens) / 2);
}

double PrefillMs(const Candidate& worker, const EngineLoad& stats, int32_t prompt_tokens) {
  const double tokens = prompt_tokens - worker.cached_tokens;
  return ComputeMs(worker, stats, tokens, worker.cached_tokens + tokens / 2);
}

bool Known(const EngineLoad& prompts) {
  return prompts.PromptTokenMs(1) > 0;
}

}  // namespace

double PromptMs(const Candidate& worker, const RouteQuery& query) {
  return QueueMs(worker, StatsOf(worker), query.prompt_tokens) +
         PrefillMs(worker, StatsOf(worker), query.prompt_tokens);
}

double StepMs(const Candidate& worker, int32_t prompt_tokens, int32_t samples) {
  const EngineLoad& stats = StatsOf(worker);
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
  double waiting_for = 0;  // number of requests that must end first
  if (needed > worker.load.blocks_free) {
    const double each = std::max(1.0, (info.blocks - worker.load.blocks_free) / requests);
    waiting_for = std::ceil((needed - worker.load.blocks_free) / each);
  }
  waiting_for = std::max<double>(
      waiting_for, worker.load.requests + query.samples - std::max(1, info.max_sequences));
  // Assumes that the ends of the requests are spread evenly over the duration of one request.
  return waiting_for <= 0 ? 0 : waiting_for / requests * query.expected_output * step;
}

double TransferMs(const Candidate& prefill, const Candidate& decode, const RouteQuery& query) {
  const std::map<WorkerId, PeerTraffic>& peers = prefill.worker->load.peers;
  const auto pair = peers.find(decode.worker->info.id);
  const bool measured = pair != peers.end() && pair->second.bytes_per_second > 0;
  const double rate = measured ? pair->second.bytes_per_second : query.transfer_bytes_per_second;
  if (rate <= 0) return 0;
  const double bytes = (query.prompt_tokens - decode.cached_tokens) * query.kv_bytes_per_token;
  return bytes / rate * 1e3;
}

bool MayServeLocally(const Candidate& decode, const RouteQuery& query) {
  const int32_t uncached = query.prompt_tokens - decode.cached_tokens;
  return uncached <= query.local_tokens && uncached <= decode.cached_tokens;
}

std::optional<double> ServeAloneMs(const Candidate& decode,
                                   const Candidate& prefill,
                                   const RouteQuery& query) {
  const EngineLoad& own = StatsOf(decode);
  const EngineLoad& prompts = Known(own) ? own : StatsOf(prefill);
  // Negative without a target, so the worker is excluded below.
  const double room = ToMillis(decode.worker->info.itl_target) - StepMs(decode, 0, 0);
  const bool speed_known = own.step_ms_base + own.step_ms_per_token > 0 && Known(prompts);
  const double least =
      prompts.PromptTokenMs(query.prompt_tokens) * decode.worker->info.block_tokens;
  if (!speed_known || room < least) return std::nullopt;
  return RoomMs(decode, query) + QueueMs(decode, prompts, query.prompt_tokens) +
         PrefillMs(decode, prompts, query.prompt_tokens);
}

Route MakeRoute(const Candidate* prefill, const Candidate& decode, const RouteQuery& query) {
  if (prefill == nullptr || prefill->slot == decode.slot || MayServeLocally(decode, query)) {
    return {nullptr, &decode, PromptMs(decode, query)};
  }
  return {prefill, &decode, PromptMs(*prefill, query)};
}

double IdlePromptMs(const RouteQuery& query) {
  double least = std::numeric_limits<double>::infinity();
  const auto idle = [](const Candidate& worker) {
    Candidate free = worker;
    free.load = {.blocks_free = worker.worker->info.blocks};
    return free;
  };
  for (const Candidate& prefill : query.prefill) {
    least = std::min(least, PromptMs(idle(prefill), query));
  }
  for (const Candidate& worker : query.decode) {
    const Candidate decode = idle(worker);
    if (query.prefill.empty() || MayServeLocally(decode, query)) {
      least = std::min(least, PromptMs(decode, query));
    }
    for (const Candidate& prefill : query.prefill) {
      least = std::min(least, ServeAloneMs(decode, idle(prefill), query).value_or(least));
    }
  }
  return least;
}

double RelativeLoad(const Candidate& worker) {
  return static_cast<double>(worker.load.requests) / std::max(1, worker.worker->info.max_sequences);
}

}  // namespace baton::router
