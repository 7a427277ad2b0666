#include "common/grammar/xgrammar/earley_matcher.h"

#include <earley_parser.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/grammar/xgrammar/library_calls.h"
#include "common/grammar/xgrammar/utf8_tokens.h"

namespace baton {
namespace {

bool Has(std::span<const uint32_t> mask, TokenId token) {
  return (mask[static_cast<size_t>(token) / 32] >> token % 32 & 1) != 0;
}

void Set(std::span<uint32_t> mask, TokenId token, bool value) {
  uint32_t& word = mask[static_cast<size_t>(token) / 32];
  const uint32_t bit = uint32_t{1} << token % 32;
  word = value ? word | bit : word & ~bit;
}

class EarleyMatcher final : public GrammarMatcher, private xgrammar::EarleyParser {
 public:
  EarleyMatcher(const MatchedGrammar& grammar,
                std::span<const TokenId> stop_tokens,
                VisitLimits limits)
      : EarleyParser(grammar.grammar),
        trie_(grammar.trie),
        masks_(grammar.masks),
        calls_(grammar.calls),
        stop_tokens_(stop_tokens.begin(), stop_tokens.end()),
        limits_(limits),
        left_(limits.call) {}

  bool Accept(TokenId token) override {
    const Mark before = {scanable_state_history_.size(), utf8_, left_};
    bool accepted = false;
    Guarded([&] { accepted = Take(token); });
    if (accepted && failure_.ok()) marks_.push_back(before);
    return accepted && failure_.ok();
  }

  // The visits of what is taken back do not count, so that guesses bring no output nearer to its
  // bound.
  void GoBack(size_t count) override {
    if (count == 0) return;
    const Mark mark = marks_[marks_.size() - count];
    marks_.resize(marks_.size() - count);
    PopLastStates(scanable_state_history_.size() - mark.states);
    utf8_ = mark.utf8;
    left_ = mark.left;
    stopped_ = false;
  }

  size_t CountAllowed(std::span<const TokenId> tokens) override {
    size_t allowed = 0;
    Guess([&] {
      while (allowed < tokens.size() && TakeGuess(tokens[allowed])) ++allowed;
    });
    return failure_.ok() ? allowed : 0;
  }

  std::vector<TokenId> Forced(std::span<const TokenId> tokens, size_t most) override {
    std::string text;
    Guess([&] {
      if (!std::ranges::all_of(tokens, [&](TokenId token) { return TakeGuess(token); })) return;
      auto byte = OnlyByte();
      for (; byte.has_value() && text.size() < kMaxForced && Step(*byte); byte = OnlyByte()) {
        text += *byte;
      }
    });
    if (!failure_.ok()) return {};
    return trie_->Spell(text, most);
  }

  void FillMask(std::span<uint32_t> mask) override {
    if (!stopped_) Guarded([&] { Fill(mask); });
    if (stopped_ || !failure_.ok()) std::ranges::fill(mask, 0);
  }

  Status failure() const override { return failure_; }

 private:
  static constexpr size_t kMaxForced = 256;  // bytes

  // The state before an accepted token.
  struct Mark {
    int32_t states = 0;  // of scanable_state_history_
    Utf8State utf8 = Utf8State::kWhole;
    int64_t left = 0;
  };

  // Calls the parser. After an error, or too many visits, the state is lost and nothing may follow.
  template <class Call>
  void Guarded(const Call& call) {
    if (!failure_.ok()) return;
    visits_ = 0;
    const SteadyClock clock;
    const Time begin = clock.Now();
    failure_ = CallXGrammar(call);
    if (!failure_.ok() && visits_ > limits_.call) {
      failure_ = InvalidArgument(
          "the grammar is too ambiguous for this output: one token or one mask may visit {} states "
          "of the parser at most",
          limits_.call);
    }
    left_ += limits_.mean - visits_;
    if (failure_.ok() && left_ < 0) {
      failure_ = InvalidArgument(
          "the grammar is too ambiguous for this output: tokens and masks may visit {} states of "
          "the parser each, on average",
          limits_.mean);
    }
    calls_->Note(clock.Now() - begin);
  }

  // Calls the parser for guesses, and takes them back. After an error the state is lost.
  template <class Call>
  void Guess(const Call& call) {
    if (!failure_.ok()) return;
    const int32_t states = scanable_state_history_.size();
    const Utf8State utf8 = utf8_;
    const SteadyClock clock;
    const Time begin = clock.Now();
    visits_ = 0;
    guessing_ = true;
    failure_ = CallXGrammar([&] {
      call();
      PopLastStates(scanable_state_history_.size() - states);
    });
    guessing_ = false;
    utf8_ = utf8;
    calls_->Note(clock.Now() - begin);
  }

  bool TakeGuess(TokenId token) {
    return std::ranges::find(stop_tokens_, token) == stop_tokens_.end() && Take(token);
  }

  // The byte that must follow, if there is only one and the output cannot end.
  std::optional<char> OnlyByte() {
    if (IsCompleted()) return std::nullopt;
    std::optional<int> only;
    for (const auto& state : scanable_state_history_.Back()) {
      const auto& rule = grammar_->per_rule_fsms[static_cast<size_t>(state.rule_id)]->GetFsm();
      for (const auto& edge : rule.GetFsm().GetEdges(state.element_id)) {
        if (!edge.IsCharRange()) continue;
        if (edge.min != edge.max || only.value_or(edge.min) != edge.min) return std::nullopt;
        only = edge.min;
      }
    }
    if (!only.has_value()) return std::nullopt;
    return static_cast<char>(*only);
  }

  bool Take(TokenId token) {
    if (stopped_) return false;
    if (std::ranges::find(stop_tokens_, token) != stop_tokens_.end()) {
      stopped_ = MayStop();
      return stopped_;
    }
    if (token < 0 || std::cmp_greater_equal(token, trie_->numbers.size())) return false;
    const int32_t number = trie_->numbers[static_cast<size_t>(token)];
    if (number < 0) return false;
    const std::string_view text = trie_->text(number);
    const Utf8State after = Utf8After(utf8_, text);
    if (after == Utf8State::kInvalid) return false;
    for (size_t i = 0; i < text.size(); ++i) {
      if (Step(text[i])) continue;
      PopLastStates(static_cast<int32_t>(i));
      return false;
    }
    utf8_ = after;
    return true;
  }

  bool MayStop() const { return utf8_ == Utf8State::kWhole && IsCompleted(); }

  // Advances by one byte; false, without an effect, when the grammar does not allow it, and when
  // the guesses have had their visits.
  bool Step(char byte) {
    visits_ += 1 + scanable_state_history_.Back().size();
    if (guessing_ && visits_ > limits_.guesses) return false;
    if (!Advance(static_cast<uint8_t>(byte))) return false;
    // The parser searches among the calls that it makes. Where their callers began at many places,
    // it later goes through such calls once for each place.
    const int64_t calls = rule_id_to_completable_states_.Back().size();
    visits_ += calls + calls * calls / 64 + CallersBegins() * calls / 2;
    if (visits_ > limits_.call) throw std::runtime_error("too many visits");
    return true;
  }

  // The number of places where the callers of the latest calls began; 0 when there are few calls.
  int64_t CallersBegins() {
    const auto callers = rule_id_to_completable_states_.Back();
    if (callers.size() < 16) return 0;
    begins_.clear();
    for (const auto& [rule, caller] : callers) begins_.push_back(caller.rule_start_pos);
    std::ranges::sort(begins_);
    return std::unique(begins_.begin(), begins_.end()) - begins_.begin();
  }

  void Fill(std::span<uint32_t> mask) {
    states_.clear();
    for (const auto& state : scanable_state_history_.Back()) {
      states_.push_back({state.rule_id, state.element_id, CallerOf(state), utf8_});
    }
    std::ranges::sort(states_);
    states_.erase(std::unique(states_.begin(), states_.end()), states_.end());
    of_states_.clear();
    possible_.clear();
    for (const StateMasks::Key& state : states_) {
      const auto& of_state = of_states_.emplace_back(masks_->Of(state));
      possible_.insert(possible_.end(), of_state->possible.begin(), of_state->possible.end());
    }
    if (states_.size() > 1) {
      std::ranges::sort(possible_);
      possible_.erase(std::unique(possible_.begin(), possible_.end()), possible_.end());
    }
    FillCertain(mask);
    DecidePossible(mask);
    const bool may_stop = MayStop();
    for (const TokenId token : stop_tokens_) Set(mask, token, may_stop);
  }

  // Sets the bits of the tokens that the states allow, whatever surrounds their rules. Most outputs
  // are in one state with many tokens, whose mask is copied.
  void FillCertain(std::span<uint32_t> mask) const {
    bool written = false;
    for (const auto& of_state : of_states_) {
      const std::vector<uint32_t>& words = of_state->words;
      if (words.empty()) continue;
      if (written) {
        for (size_t i = 0; i < words.size(); ++i) mask[i] |= words[i];
        continue;
      }
      const auto rest = mask.subspan(words.size());
      std::copy(words.begin(), words.end(), mask.data());  // std::ranges::copy is a loop in g++ 12
      std::ranges::fill(rest, 0);
      written = true;
    }
    if (!written) std::ranges::fill(mask, 0);
    for (const auto& of_state : of_states_) {
      for (const TokenId token : of_state->few) Set(mask, token, true);
    }
  }

  // The caller of the state's rule, if there is only one and it repeats the rule.
  RuleAutomaton::Repetition CallerOf(const xgrammar::ParserState& state) const {
    if (state.rule_start_pos == xgrammar::ParserState::kNoPrevInputPos) return {};
    const xgrammar::ParserState* only = nullptr;
    for (const auto& [called, caller] : rule_id_to_completable_states_[state.rule_start_pos]) {
      if (called != state.rule_id) continue;
      if (only != nullptr) return {};
      only = &caller;
    }
    if (only == nullptr || only->rule_id < 0) return {};
    const auto& caller = grammar_->per_rule_fsms[static_cast<size_t>(only->rule_id)]->GetFsm();
    const auto edges = caller.GetFsm().GetEdges(only->element_id);
    if (edges.size() != 1 || !edges[0].IsRepeatRef()) return {};
    const auto repeat = grammar_->complete_fsm.GetRepeatEdgeInfo(edges[0].GetAuxIndex());
    if (repeat.RuleId() != state.rule_id) return {};
    return masks_->Shared(
        {only->rule_id, only->element_id, only->repeat_count}, repeat.Lower(), repeat.Upper());
  }

  // Sets the bits of those tokens of possible_ that the parser accepts.
  void DecidePossible(std::span<uint32_t> mask) {
    std::string_view before;  // the latest token that was tried
    size_t matched = 0;       // bytes of it that the parser has taken
    int32_t rejected = 0;     // the tokens below this number begin with rejected bytes
    for (const int32_t token : possible_) {
      const TokenId id = trie_->ids[static_cast<size_t>(token)];
      if (token < rejected || Has(mask, id)) continue;
      const std::string_view text = trie_->text(token);
      const auto common =
          static_cast<size_t>(std::ranges::mismatch(before, text).in1 - before.begin());
      if (common <= matched) {
        if (common < matched) PopLastStates(static_cast<int32_t>(matched - common));
        matched = common;
        before = text;
        while (matched < text.size() && Step(text[matched])) ++matched;
        if (matched == text.size()) {
          Set(mask, id, true);
          continue;
        }
      }
      rejected = trie_->subtree[static_cast<size_t>(token)];
    }
    if (matched > 0) PopLastStates(static_cast<int32_t>(matched));
  }

  const std::shared_ptr<const TokenTrie> trie_;
  const std::shared_ptr<StateMasks> masks_;
  const std::shared_ptr<RecentCalls> calls_;
  const std::vector<TokenId> stop_tokens_;
  const VisitLimits limits_;
  bool stopped_ = false;
  Utf8State utf8_ = Utf8State::kWhole;
  std::vector<Mark> marks_;  // by accepted token
  Status failure_;
  bool guessing_ = false;  // in Guess
  int64_t visits_ = 0;     // of this call
  int64_t left_;           // visits of this call and those before, before the mean is exceeded
  std::vector<int32_t> begins_;  // used by CallersBegins
  // Used by Fill.
  std::vector<StateMasks::Key> states_;
  std::vector<std::shared_ptr<const StateMask>> of_states_;
  std::vector<int32_t> possible_;
};

}  // namespace

std::unique_ptr<GrammarMatcher> NewEarleyMatcher(const MatchedGrammar& grammar,
                                                 std::span<const TokenId> stop_tokens,
                                                 VisitLimits limits) {
  return std::make_unique<EarleyMatcher>(grammar, stop_tokens, limits);
}

}  // namespace baton
