#include "common/grammar/xgrammar/state_masks.h"

#include <algorithm>
#include <span>

namespace baton {
namespace {

// Of one grammar: the memory of this number of full masks.
constexpr size_t kMaxMasks = 512;
// A mask with at most this many tokens is a list.
constexpr size_t kMaxListed = 256;
// What one mask may add to RuleAutomaton::work.
constexpr int64_t kMaxWork = 1'000'000;

// Divides all tokens into those that are allowed, possible and neither.
class Walk {
 public:
  Walk(const TokenTrie& trie, RuleAutomaton& automaton) : trie_(trie), automaton_(automaton) {}

  StateMask From(RuleAutomaton::Id start) {
    for (const TextClass text_class : kAllTextClasses) {
      if (DecideClass(start, text_class)) break;
    }
    for (const auto& [node, byte] : trie_.of_root) {
      const RuleAutomaton::Id to = automaton_.Next(start, byte);
      if (to != RuleAutomaton::kDead && Visit(node, to)) VisitBelow(node, to);
    }
    return Result();
  }

 private:
  void VisitBelow(int32_t top, RuleAutomaton::Id after_top) {
    const int32_t behind = trie_.end[static_cast<size_t>(top)];
    // The configurations of the nodes above, each until the end of its node's subtree.
    path_.assign(1, {after_top, behind});
    for (int32_t node = top + 1; node < behind;) {
      while (path_.back().second <= node) path_.pop_back();
      const auto at = static_cast<size_t>(node);
      const int32_t end = trie_.end[at];
      const RuleAutomaton::Id to = automaton_.Next(path_.back().first, trie_.byte[at]);
      const bool inside = to != RuleAutomaton::kDead && Visit(node, to);
      if (inside) path_.emplace_back(to, end);
      node = inside ? node + 1 : end;
    }
  }

  RuleAutomaton::Text TextAfter(RuleAutomaton::Id id, TextClass text_class) {
    return automaton_.TextAfter(id, text_class, trie_.of(text_class).longest);
  }

  // Decides about all tokens of a class by the number of their characters, if that is possible.
  // Near the end of a string with a bound, a walk over them takes up to 1 ms for each number of
  // characters that are left.
  bool DecideClass(RuleAutomaton::Id start, TextClass text_class) {
    const TokenTrie::Class& tokens = trie_.of(text_class);
    const RuleAutomaton::Text text = TextAfter(start, text_class);
    const bool all = text.characters >= tokens.longest;
    if (tokens.longest == 0 || text.characters == 0 || (!all && !text.most)) return false;
    decided_ = &tokens;
    const std::span<const TokenId> ids = tokens.by_length;
    const size_t allowed = all ? ids.size() : tokens.up_to[static_cast<size_t>(text.characters)];
    if (allowed <= ids.size() / 2) {
      AddTokens(ids.first(allowed));
      return true;
    }
    words_ = tokens.tokens;
    for (const TokenId id : ids.subspan(allowed)) Clear(id);
    return true;
  }

  // Decides about the tokens of a node to which `to` belongs; whether those below must be visited.
  bool Visit(int32_t node, RuleAutomaton::Id to) {
    const auto at = static_cast<size_t>(node);
    const auto end = static_cast<size_t>(trie_.end[at]);
    const int32_t below = trie_.first[at + 1];
    const bool certain = automaton_.certain(to);
    const bool decided = decided_ != nullptr && decided_->whole[at];
    if (!decided) Add(certain, trie_.first[at], below);
    if (end == at + 1) return false;
    if (automaton_.anything(to)) {
      Add(false, below, trie_.first[end]);
      return false;
    }
    if (!certain) return true;
    if (decided && decided_->rest[at] != TokenTrie::Class::kOther) return false;
    if (!AllBelow(at, to)) return true;
    Add(true, below, trie_.first[end]);
    return false;
  }

  // Whether all tokens below a node are certainly allowed because of the class of their characters.
  bool AllBelow(size_t node, RuleAutomaton::Id to) {
    return std::ranges::any_of(kAllTextClasses, [&](TextClass text_class) {
      const uint8_t rest = trie_.of(text_class).rest[node];
      return rest != TokenTrie::Class::kOther && TextAfter(to, text_class).characters >= rest;
    });
  }

  void Add(bool certain, int32_t begin, int32_t end) {
    if (!certain) {
      for (int32_t token = begin; token < end; ++token) possible_.push_back(token);
      return;
    }
    AddTokens(
        std::span(trie_.ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
  }

  void AddTokens(std::span<const TokenId> ids) {
    if (words_.empty() && few_.size() + ids.size() > kMaxListed) {
      words_.resize(trie_.of(TextClass::kPlain).tokens.size());
      for (const TokenId id : few_) Set(id);
      few_.clear();
    }
    if (words_.empty()) {
      few_.insert(few_.end(), ids.begin(), ids.end());
    } else {
      for (const TokenId id : ids) Set(id);
    }
  }

  void Set(TokenId id) { words_[static_cast<size_t>(id) / 32] |= uint32_t{1} << id % 32; }
  void Clear(TokenId id) { words_[static_cast<size_t>(id) / 32] &= ~(uint32_t{1} << id % 32); }

  StateMask Result() {
    few_.shrink_to_fit();
    possible_.shrink_to_fit();
    return {std::move(words_), std::move(few_), std::move(possible_)};
  }

  const TokenTrie& trie_;
  RuleAutomaton& automaton_;
  std::vector<std::pair<RuleAutomaton::Id, int32_t>> path_;  // used by VisitBelow
  const TokenTrie::Class* decided_ = nullptr;  // the class whose tokens are decided about
  std::vector<uint32_t> words_;                // empty while few_ is used
  std::vector<TokenId> few_;
  std::vector<int32_t> possible_;
};

}  // namespace

StateMasks::StateMasks(const xgrammar::Grammar& grammar,
                       std::shared_ptr<const TokenTrie> trie,
                       std::shared_ptr<const Utf8Tokens> utf8)
    : trie_(std::move(trie)),
      utf8_(std::move(utf8)),
      max_mask_bytes_(kMaxMasks * (sizeof(StateMask) +
                                   trie_->of(TextClass::kPlain).tokens.size() * sizeof(uint32_t))),
      automaton_(grammar) {}

RuleAutomaton::Repetition StateMasks::Shared(RuleAutomaton::Repetition caller,
                                             int32_t least,
                                             int32_t most) const {
  const auto longest = static_cast<int64_t>(trie_->longest);
  const auto beyond = [&](int64_t bound) { return caller.count + longest < bound; };
  if (beyond(least)) {
    caller.count = static_cast<int32_t>(least - longest - 1);
  } else if (caller.count >= least && beyond(most) && most - longest - 1 >= least) {
    caller.count = static_cast<int32_t>(most - longest - 1);
  }
  return caller;
}

std::shared_ptr<const StateMask> StateMasks::Of(const Key& key) {
  std::lock_guard lock(mutex_);
  if (const auto found = masks_.find(key); found != masks_.end()) return found->second;
  auto mask = Compute(key);
  if (mask_bytes_ > max_mask_bytes_) {
    masks_.clear();
    mask_bytes_ = 0;
  }
  mask_bytes_ += mask->bytes();
  masks_.emplace(key, mask);
  bytes_.store(mask_bytes_ + automaton_.bytes(), std::memory_order_relaxed);
  return mask;
}

std::shared_ptr<const StateMask> StateMasks::Compute(const Key& key) {
  automaton_.MakeRoom();
  automaton_.LimitWork(automaton_.work() + kMaxWork);
  StateMask mask = Walk(*trie_, automaton_).From(automaton_.Start(key.rule, key.state, key.caller));
  const auto breaks = [&](TokenId token) { return !utf8_->Allows(key.utf8, token); };
  utf8_->Limit(key.utf8, mask.words);
  std::erase_if(mask.few, breaks);
  std::erase_if(mask.possible,
                [&](int32_t token) { return breaks(trie_->ids[static_cast<size_t>(token)]); });
  return std::make_shared<const StateMask>(std::move(mask));
}

}  // namespace baton
