#pragma once

#include <optional>

#include "router/routing/policies/routing_policy.h"

namespace baton::router {

// Predictions in milliseconds for one worker, from the step-time model that the worker fits to its
// own steps and reports:
// step = base + per_token · sequences + per_token_context · the sum of their contexts
//      + per_prompt_token · tokens + per_prompt_token_context · tokens · context.

// Time until the worker has computed the uncached part of the prompt, after the tokens that are
// queued there (taken as prompts of this length). A step computes the worker's token budget, or, if
// the worker also decodes and keeps an ITL target, as many prompt tokens as the target allows.
double PromptMs(const Candidate& worker, const RouteQuery& query);

// Time of one decode step after `samples` more sequences of `prompt_tokens` each have joined.
double StepMs(const Candidate& worker, int32_t prompt_tokens, int32_t samples);

// Time until the worker has free blocks and batch places for `samples` sequences of this size.
double RoomMs(const Candidate& worker, const RouteQuery& query);

// Time to transfer the KV that `decode` has not cached, at the rate that `prefill` measured to
// `decode`, or at the average of all hand-offs while that is unknown. Zero while both are unknown.
double TransferMs(const Candidate& prefill, const Candidate& decode, const RouteQuery& query);

// Whether the decode worker may serve the prompt alone because of its prefix cache: it has cached
// at least half of the prompt, and at most query.local_tokens are uncached.
bool MayServeLocally(const Candidate& decode, const RouteQuery& query);

// Time until `decode` has computed the prompt alone: after it has room, behind the prompts that it
// already has, in the chunks that its ITL target allows. A decode worker that has not computed any
// prompt yet is assumed to be as fast at prompts as `prefill`. nullopt when `decode` may not take
// the prompt: it has no ITL target, the target leaves no room for a chunk, or its speed is unknown.
std::optional<double> ServeAloneMs(const Candidate& decode,
                                   const Candidate& prefill,
                                   const RouteQuery& query);

// The route (prefill, decode) with its predicted TTFT. The decode worker serves alone when
// `prefill` is null, when both are the same worker, or when MayServeLocally is true.
Route MakeRoute(const Candidate* prefill, const Candidate& decode, const RouteQuery& query);

// Time to compute the prompt if no worker had any load: the least over all routes that `query`
// allows.
double IdlePromptMs(const RouteQuery& query);

// Requests per place in the batch (max_sequences): the load measure of the policies that compare
// load alone.
double RelativeLoad(const Candidate& worker);

}  // namespace baton::router
