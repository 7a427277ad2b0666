#include "common/engine/sequence_masks.h"

#include <span>
#include <utility>
#include <vector>

namespace baton {

void SequenceMasks::First(const std::shared_ptr<const Grammar>& grammar,
                          std::span<const TokenId> stop_tokens,
                          std::vector<TokenId> output,
                          std::function<void(std::shared_ptr<SequenceMask>)> done) {
  auto mask = std::make_shared<SequenceMask>(vocabulary_, grammar, stop_tokens);
  (void)mask->Prepare(output, {});  // a new one is not being computed
  // The mask of an empty output is known to the grammar. Other output may be long.
  const bool slow = !output.empty() || grammar->recent_call() > kLongCall;
  ThreadFor(slow).Post([mask = std::move(mask), done = std::move(done)] {
    mask->Compute();
    done(mask);
  });
}

void SequenceMasks::Begin(Sequence& sequence) {
  const ActiveRequest& active = *sequence.request;
  if (active.grammar == nullptr) return;
  if (sequence.mask == nullptr) {
    sequence.mask =
        std::make_shared<SequenceMask>(vocabulary_, active.grammar, active.request.stop_tokens);
  }
  const auto output = std::span(sequence.tokens).subspan(active.request.prompt_length);
  const auto known = output.first(output.size() - sequence.drafts);
  if (!sequence.mask->Prepare(known, output.last(sequence.drafts))) return;
  const bool slow = active.grammar->recent_call() > kLongCall;
  ThreadFor(slow).Post([mask = sequence.mask] { mask->Compute(); });
}

void SequenceMasks::BeginAll(const StepPlan& plan) {
  for (const PlanRow& row : plan.rows) {
    const bool runs = row.sequence->state == SequenceState::kRunning;
    if (row.samples > 0 && runs) Begin(*row.sequence);
  }
}

}  // namespace baton
