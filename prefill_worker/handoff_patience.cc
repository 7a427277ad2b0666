#include "prefill_worker/handoff_patience.h"

#include <algorithm>

namespace baton {
namespace {

// As long as failed hand-offs may delay a request (RequestMachine, kMaxLostToHandoffs).
constexpr Duration kMinPatience = std::chrono::seconds(4);
// Another worker may be busy, and its hand-off takes time, too.
constexpr int kComputations = 2;

}  // namespace

Duration HandoffPatience(const EngineLoad& load, uint32_t prompt_tokens, Duration computed) {
  const double tokens = prompt_tokens;
  const double token_ms = load.PromptTokenMs(tokens / 2);
  const Duration estimate = FromSeconds(std::max(0.0, token_ms * tokens / 1e3));
  return std::max(kMinPatience, kComputations * (token_ms > 0 ? estimate : computed));
}

}  // namespace baton
