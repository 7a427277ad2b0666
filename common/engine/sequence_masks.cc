#include "common/engine/sequence_masks.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace baton {
namespace {

// Why a mask that allows no token does so. All of these are the request's own fault, except a token
// that its grammar does not allow, which was never sampled under a mask.
Status WhyNothing(const GrammarMatcher& matcher, bool accepted) {
  if (!matcher.failure().ok()) return matcher.failure();
  if (!accepted) {
    return MakeStatus(StatusCode::kInternal, "the output so far does not match its grammar");
  }
  return InvalidArgument(
      "no token of the model can continue the output as its grammar demands, and it cannot end");
}

// An empty mask ends the request with the error `state.failure`.
void Compute(SequenceMask& state, const std::vector<TokenId>& tokens) {
  const auto words = state.mask.words();
  const bool accepted =
      std::ranges::all_of(tokens, [&](TokenId token) { return state.matcher->Accept(token); });
  if (accepted) {
    state.matcher->FillMask(words);
  } else {
    std::ranges::fill(words, 0);
  }
  const bool empty = std::ranges::all_of(words, [](uint32_t word) { return word == 0; });
  state.failure = empty ? WhyNothing(*state.matcher, accepted) : OkStatus();
  state.mask.Finish();
}

}  // namespace

void SequenceMasks::First(const std::shared_ptr<const Grammar>& grammar,
                          std::span<const TokenId> stop_tokens,
                          std::vector<TokenId> output,
                          std::function<void(std::shared_ptr<SequenceMask>)> done) {
  auto state = std::make_shared<SequenceMask>(vocabulary_, nullptr);
  state->begun = true;
  state->given = output.size();
  state->mask.Begin();
  // The mask of an empty output is known to the grammar. Other output may be long.
  const bool slow = !output.empty() || grammar->recent_call() > kLongCall;
  (slow ? slow_thread_ : threads_)
      .Post([=,
             stops = std::vector(stop_tokens.begin(), stop_tokens.end()),
             tokens = std::move(output),
             done = std::move(done)] {
        state->matcher = grammar->NewMatcher(stops);
        Compute(*state, tokens);
        done(state);
      });
}

void SequenceMasks::Begin(Sequence& sequence) {
  const ActiveRequest& active = *sequence.request;
  if (active.grammar == nullptr) return;
  if (sequence.mask == nullptr) {
    sequence.mask = std::make_shared<SequenceMask>(
        vocabulary_, active.grammar->NewMatcher(active.request.stop_tokens));
  }
  SequenceMask& state = *sequence.mask;
  const auto output = std::span(sequence.tokens).subspan(active.request.prompt_length);
  if (state.begun && state.given == output.size()) return;
  const auto added = output.subspan(state.given);
  state.begun = true;
  state.given = output.size();
  state.mask.Begin();
  const bool slow = active.grammar->recent_call() > kLongCall;
  (slow ? slow_thread_ : threads_)
      .Post([state = sequence.mask, tokens = std::vector(added.begin(), added.end())] {
        Compute(*state, tokens);
      });
}

void SequenceMasks::BeginAll(const StepPlan& plan) {
  for (const PlanRow& row : plan.rows) {
    const bool runs = row.sequence->state == SequenceState::kRunning;
    if (row.samples > 0 && runs) Begin(*row.sequence);
  }
}

}  // namespace baton
