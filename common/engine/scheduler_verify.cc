#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/engine/scheduler.h"
#include "common/engine/sequence_masks.h"

// Guessed tokens (drafts), which a step verifies: it computes them behind the next token of their
// sequence, and chooses a token after each of them. Drafts that equal the chosen tokens are part of
// the output; the sequence goes back to the first one that does not. Because the choice of a token
// depends on the tokens before it (and its mask on them), on the seed and on its position alone,
// the output is the same as without drafts.
namespace baton {

// How many drafts this step may verify: it has room for each decoding sequence, and half of the
// rest is for prompts.
void Scheduler::SetDraftBudget() {
  draft_budget_ = 0;
  if (options_.engine.lookup_drafts == 0) return;
  const auto decodes = std::ranges::count_if(
      running_, [](const Sequence* sequence) { return sequence->remaining() == 1; });
  const int64_t rest = (share_.tokens - decodes) / 2;
  draft_budget_ = static_cast<int32_t>(std::clamp<int64_t>(rest, 0, options_.limits.scored_rows));
}

// Guesses of the next tokens of a sequence, at most `most`. Under a grammar, the text that it
// demands, and else what the drafter finds, as far as it is allowed.
std::vector<TokenId> Scheduler::FindDrafts(Sequence& sequence, int32_t most) const {
  const ActiveRequest& active = *sequence.request;
  const auto output = std::span(sequence.tokens).subspan(active.request.prompt_length);
  SequenceMask* mask = nullptr;
  if (active.grammar != nullptr) {
    // The tokens of the row wait for the masks after all of its drafts.
    if (active.grammar->recent_call() > SequenceMasks::kLongCall) return {};
    mask = sequence.mask.get();
    if (mask == nullptr || most < 1) return {};
    std::vector<TokenId> forced = mask->Forced(output, static_cast<size_t>(most));
    if (!forced.empty()) return forced;
  }
  if (sequence.drafter == nullptr) {
    sequence.drafter = std::make_unique<LookupDrafter>(options_.engine.lookup_drafts);
  }
  std::span<const TokenId> found = sequence.drafter->Draft(sequence.tokens, most);
  if (mask != nullptr && !found.empty()) found = found.first(mask->Allowed(output, found));
  return {found.begin(), found.end()};
}

// Appends drafts to a sequence that has blocks for them, at most one more of each cache group.
// Returns how many.
int32_t Scheduler::AppendDrafts(Sequence& sequence) {
  const ActiveRequest& active = *sequence.request;
  // A state that has the row already cannot take drafts behind it.
  if (!active.forked || sequence.tokens.back() < 0 || sequence.in_state) return 0;
  const int32_t in_blocks = TokensInBlocks(sequence);
  const int32_t most = std::min({options_.engine.lookup_drafts,
                                 draft_budget_,
                                 active.longest - 1 - sequence.length(),
                                 in_blocks - sequence.length()});
  const std::vector<TokenId> drafts = FindDrafts(sequence, most);
  if (drafts.empty() || Spare() < cache_.groups() + cache_.state_blocks()) return 0;
  const auto count = static_cast<int32_t>(drafts.size());
  if (!Grow(sequence, cache_.BlocksFor(sequence.length() + count))) return 0;
  // The state before the row, to which the sequence may go back.
  if (has_states() && sequence.read_state == nullptr) {
    sequence.read_state = std::make_unique<Lease>(sequence.table.SplitState());
    const bool taken = sequence.table.TakeNewState();
    BATON_CHECK(taken, "{} blocks are available", cache_.available());
  }
  sequence.tokens.insert(sequence.tokens.end(), drafts.begin(), drafts.end());
  sequence.drafts = count;
  draft_budget_ -= count;
  plan_->drafts += count;
  return count;
}

// The most tokens that a sequence may have in its blocks and one more of each cache group.
int32_t Scheduler::TokensInBlocks(const Sequence& sequence) const {
  const int32_t blocks = cache_.BlocksFor(sequence.length());
  const int64_t held = sequence.table.held() + cache_.groups();
  const bool promised = !never_evicts() || !slides() || held <= sequence.promised;
  return (blocks + (promised ? 1 : 0)) * cache_.block_tokens();
}

// Takes the tokens that a step chose after each token of a row, up to the first one that is not the
// next draft. A token whose mask was late is chosen by a later step, and so are those after it.
void Scheduler::TakeVerified(Sequence& sequence,
                             const PlanRow& row,
                             std::span<SampledToken> tokens) {
  const std::unique_ptr<Lease> read_state = std::move(sequence.read_state);
  const std::vector<TokenId> drafts(sequence.tokens.end() - std::exchange(sequence.drafts, 0),
                                    sequence.tokens.end());
  sequence.tokens.resize(sequence.tokens.size() - drafts.size());
  totals_.drafts += std::ssize(drafts);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const TokenId token = tokens[i].token;
    if (token == kLateToken) break;
    sequence.computed = row.first + static_cast<int32_t>(i) + 1;
    // Its state has the other drafts, too.
    sequence.in_state = has_states() && i < drafts.size();
    if (token == kNoToken) return FailWithoutToken(sequence, sequence.computed);
    TakeToken(sequence, sequence.computed, std::move(tokens[i]), /*emit=*/true);
    if (sequence.state != SequenceState::kRunning) return;
    if (i == drafts.size()) return;  // all drafts were right
    if (token != drafts[i]) break;
    ++totals_.accepted_drafts;
  }
  Rewind(sequence, row, read_state.get());
}

// Takes a sequence back to its last token that is part of the output. A state goes back to that
// before the row, and the next row computes the tokens after it again.
void Scheduler::Rewind(Sequence& sequence, const PlanRow& row, Lease* read_state) {
  if (has_states()) {
    sequence.table.SwapState(*read_state);
    // The next row needs another state again.
    if (never_evicts() && !sequence.table.HasOwnState()) {
      sequence.promised += cache_.state_blocks();
      promised_ += cache_.state_blocks();
    }
    sequence.in_state = false;
    sequence.computed = row.first;
  }
  const int64_t held = sequence.table.held();
  sequence.table.Truncate(cache_.BlocksFor(sequence.length()));
  if (!never_evicts() || slides()) return;
  const auto released = static_cast<int32_t>(held - sequence.table.held());
  sequence.promised += released;
  promised_ += released;
}

}  // namespace baton
