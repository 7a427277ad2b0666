#pragma once

#include <xgrammar/grammar.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/base/token_id.h"
#include "common/grammar/xgrammar/rule_automaton.h"
#include "common/grammar/xgrammar/token_trie.h"
#include "common/grammar/xgrammar/utf8_tokens.h"

namespace baton {

// The tokens that may follow one state of a rule.
struct StateMask {
  // Tokens that are allowed whatever surrounds the rule: the words of a mask, or, when they are
  // few, a list.
  std::vector<uint32_t> words;
  std::vector<TokenId> few;
  // Tokens, in the numbers of the trie, that go on behind the end of the rule: whether they are
  // allowed depends on what surrounds it. Sorted.
  std::vector<int32_t> possible;

  size_t bytes() const {
    return sizeof(*this) + words.size() * sizeof(uint32_t) + few.size() * sizeof(TokenId) +
           possible.size() * sizeof(int32_t);
  }
};

// The masks of the states of one grammar, each computed when it is first needed. The memory is
// bounded: masks are forgotten when there are too many. Thread-safe.
class StateMasks final {
 public:
  // The grammar as RuleAutomaton needs it.
  StateMasks(const xgrammar::Grammar& grammar,
             std::shared_ptr<const TokenTrie> trie,
             std::shared_ptr<const Utf8Tokens> utf8);

  // A state of a rule, what is known of the rule's caller, and how far the last character of the
  // output is written. The masks are limited to UTF-8 when they are computed, because that takes as
  // long as all the rest of a mask that is known.
  struct Key {
    int32_t rule = 0;
    int32_t state = 0;
    RuleAutomaton::Repetition caller = {};
    Utf8State utf8 = Utf8State::kWhole;
    auto operator<=>(const Key&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& v) {
      return H::combine(std::move(h), v.rule, v.state, v.caller, v.utf8);
    }
  };

  // The same repetition with a count that the masks have in common with others: no token can
  // tell apart two counts that are further from the bounds, `least` and `most`, than it is long.
  RuleAutomaton::Repetition Shared(RuleAutomaton::Repetition caller,
                                   int32_t least,
                                   int32_t most) const;
  // Takes up to about 130 ms: RuleAutomaton::LimitWork bounds the states that one mask may add.
  std::shared_ptr<const StateMask> Of(const Key& key);
  // Approximate memory, in bytes. Never waits for a mask that is being computed.
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::shared_ptr<const StateMask> Compute(const Key& key);

  const std::shared_ptr<const TokenTrie> trie_;
  const std::shared_ptr<const Utf8Tokens> utf8_;
  const size_t max_mask_bytes_;
  std::mutex mutex_;
  RuleAutomaton automaton_;
  absl::flat_hash_map<Key, std::shared_ptr<const StateMask>> masks_;
  size_t mask_bytes_ = 0;
  std::atomic<size_t> bytes_{0};
};

}  // namespace baton
