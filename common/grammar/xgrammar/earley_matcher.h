#pragma once

#include <xgrammar/grammar.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "common/base/clock.h"
#include "common/base/token_id.h"
#include "common/grammar/grammar.h"
#include "common/grammar/xgrammar/state_masks.h"
#include "common/grammar/xgrammar/token_trie.h"

namespace baton {

// How long the calls of the matchers of one grammar take. Thread-safe.
class RecentCalls final {
 public:
  void Note(Duration took) {
    // Decays, so that a thread that was interrupted once counts for a few hundred calls only. Two
    // threads may lose one another's call.
    const int64_t before = longest_ns_.load(std::memory_order_relaxed);
    longest_ns_.store(std::max<int64_t>(took.count(), before - before / 64),
                      std::memory_order_relaxed);
  }
  Duration longest() const { return Duration(longest_ns_.load(std::memory_order_relaxed)); }

 private:
  std::atomic<int64_t> longest_ns_{0};
};

// What the matchers of one grammar share.
struct MatchedGrammar {
  xgrammar::Grammar grammar;  // optimised
  std::shared_ptr<const TokenTrie> trie;
  std::shared_ptr<StateMasks> masks;
  std::shared_ptr<RecentCalls> calls;
};

// States that the parser may visit, about 0.1 µs each. Only ambiguous grammars come near.
struct VisitLimits {
  int64_t call = 4'000'000;  // one token, or one mask
  // All calls for an output may visit `call` states and this many for each of them: otherwise an
  // output whose calls all stay below `call` could take minutes.
  int64_t mean = 50'000;
  int64_t guesses = 2'000;  // one CountAllowed, or one Forced
};

// The state of an empty output: XGrammar's Earley parser, with the masks of `grammar`. The output
// is valid UTF-8, whatever the grammar allows, and may stop between two characters only.
std::unique_ptr<GrammarMatcher> NewEarleyMatcher(const MatchedGrammar& grammar,
                                                 std::span<const TokenId> stop_tokens,
                                                 VisitLimits limits = {});

}  // namespace baton
