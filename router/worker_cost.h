#pragma once

#include "router/routing_policy.h"

namespace baton::router {

// Predictions in milliseconds for one worker, from the step-time model that it fits and reports:
// step = base + per_token · tokens + per_token_context · tokens · context.

// Computing the part of a prompt of `prompt_tokens` that the worker does not hold, in chunks of its
// token budget.
double PrefillMs(const Candidate& worker, int32_t prompt_tokens);

// Until what is queued there already has been computed.
double QueueMs(const Candidate& worker);

// One decode step after `samples` more sequences of `prompt_tokens` joined.
double StepMs(const Candidate& worker, int32_t prompt_tokens, int32_t samples);

// Until the worker has the blocks and a place in its batch for `samples` sequences of this size.
double RoomMs(const Candidate& worker, const RouteQuery& query);

// Bringing over the KV that `decode` lacks. Zero while nothing is known of the hand-offs' speed.
double TransferMs(const Candidate& decode, const RouteQuery& query);

// The decode worker holds most of the prompt, and what it lacks is within the bound.
bool MayServeLocally(const Candidate& decode, const RouteQuery& query);

// The route (prefill, decode) with its predicted TTFT; local when there is no prefill worker, when
// both are one worker, or when MayServeLocally.
Route MakeRoute(const Candidate* prefill, const Candidate& decode, const RouteQuery& query);

// Requests per place in the batch: what "loaded" means where load alone decides.
double RelativeLoad(const Candidate& worker);

}  // namespace baton::router
