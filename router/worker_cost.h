#pragma once

#include <optional>

#include "router/routing_policy.h"

namespace baton::router {

// Predictions in milliseconds for one worker, from the step-time model that it fits and reports:
// step = base + per_token · sequences + per_token_context · their contexts
//      + per_prompt_token · tokens + per_prompt_token_context · tokens · context.

// Until the worker has computed the part of the prompt that it does not hold, behind what is queued
// there, as if that were prompts of this length; in steps of its token budget, or, beside sequences
// that decode under an ITL target, of what the target leaves.
double PromptMs(const Candidate& worker, const RouteQuery& query);

// One decode step after `samples` more sequences of `prompt_tokens` joined.
double StepMs(const Candidate& worker, int32_t prompt_tokens, int32_t samples);

// Until the worker has the blocks and a place in its batch for `samples` sequences of this size.
double RoomMs(const Candidate& worker, const RouteQuery& query);

// Bringing over the KV that `decode` lacks. Zero while nothing is known of the hand-offs' speed.
double TransferMs(const Candidate& decode, const RouteQuery& query);

// The decode worker holds most of the prompt, and what it lacks is within the bound.
bool MayServeLocally(const Candidate& decode, const RouteQuery& query);

// Until `decode` has computed a prompt that it does not hold: once it has room, behind the prompts
// that it has already, in the chunks that its ITL target leaves. While it has computed none it is
// believed to be as fast at prompts as `prefill`. Nothing when it may not take the prompt: it keeps
// no target, the target leaves no room, or its speed is unknown.
std::optional<double> TakeOverMs(const Candidate& decode,
                                 const Candidate& prefill,
                                 const RouteQuery& query);

// The route (prefill, decode) with its predicted TTFT; local when there is no prefill worker, when
// both are one worker, or when MayServeLocally.
Route MakeRoute(const Candidate* prefill, const Candidate& decode, const RouteQuery& query);

// Requests per place in the batch: what "loaded" means where load alone decides.
double RelativeLoad(const Candidate& worker);

}  // namespace baton::router
