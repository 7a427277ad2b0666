#include "common/grammar/xgrammar/rule_automaton.h"

#include <fsm.h>
#include <grammar_impl.h>

#include <algorithm>
#include <array>

#include "common/base/check.h"

namespace baton {
namespace {

// Of one configuration. A set with more becomes vague.
constexpr size_t kMaxReached = 4096;
constexpr size_t kMaxConfigs = 8192;
constexpr size_t kMaxPositions = size_t{256} << 10;  // of all configurations
constexpr size_t kMaxFrames = size_t{256} << 10;
// The configurations that TextAfter visits.
constexpr size_t kMaxTextVisits = 512;

struct ByteRange {
  uint8_t low;
  uint8_t high;
};

struct Encoding {
  size_t length;
  std::array<ByteRange, 4> bytes;
};

// The encodings in UTF-8 of the characters beyond ASCII.
constexpr ByteRange kAny = {0x80, 0xBF};
constexpr Encoding kEncodings[] = {{2, {{{0xC2, 0xDF}, kAny}}},
                                   {3, {{{0xE0, 0xE0}, {0xA0, 0xBF}, kAny}}},
                                   {3, {{{0xE1, 0xEC}, kAny, kAny}}},
                                   {3, {{{0xED, 0xED}, {0x80, 0x9F}, kAny}}},
                                   {3, {{{0xEE, 0xEF}, kAny, kAny}}},
                                   {4, {{{0xF0, 0xF0}, {0x90, 0xBF}, kAny, kAny}}},
                                   {4, {{{0xF1, 0xF3}, kAny, kAny, kAny}}},
                                   {4, {{{0xF4, 0xF4}, {0x80, 0x8F}, kAny, kAny}}}};

}  // namespace

RuleAutomaton::RuleAutomaton(const xgrammar::Grammar& grammar)
    : grammar_(grammar), nullable_(static_cast<size_t>(grammar->NumRules())) {
  int32_t states = 0;
  for (const auto& of_rule : grammar->per_rule_fsms) {
    first_states_.push_back(states);
    states += of_rule->GetNodeNum();
  }
  for (const int32_t rule : grammar->allow_empty_rule_ids) {
    nullable_[static_cast<size_t>(rule)] = true;
  }
  FindCallers();
  Clear();
}

void RuleAutomaton::FindCallers() {
  callers_.resize(nullable_.size());
  const auto& fsm = grammar_->complete_fsm;
  std::vector<int32_t> seen_by(static_cast<size_t>(fsm.NumStates()), -1);
  std::vector<int32_t> waiting;
  for (int32_t rule = 0; rule < grammar_->NumRules(); ++rule) {
    const auto visit = [&](int32_t state) {
      int32_t& seen = seen_by[static_cast<size_t>(state)];
      if (seen == rule) return;
      seen = rule;
      waiting.push_back(state);
    };
    visit(StartOf(rule));
    while (!waiting.empty()) {
      const int32_t state = waiting.back();
      waiting.pop_back();
      for (const auto& edge : fsm.GetEdges(state)) {
        visit(edge.target);
        if (edge.IsRuleRef()) {
          callers_[static_cast<size_t>(edge.GetRefRuleId())].push_back({rule, edge.target, false});
        } else if (edge.IsRepeatRef()) {
          const auto repeat = fsm.GetRepeatEdgeInfo(edge.GetAuxIndex());
          callers_[static_cast<size_t>(repeat.RuleId())].push_back({rule, state, true});
        }
      }
    }
  }
  for (std::vector<Caller>& of_rule : callers_) {
    std::ranges::sort(of_rule);
    of_rule.erase(std::unique(of_rule.begin(), of_rule.end()), of_rule.end());
  }
}

void RuleAutomaton::Clear() {
  ids_.clear();
  configs_.clear();
  transitions_.clear();
  certain_.clear();
  text_after_.clear();
  frames_.clear();
  frame_ids_.clear();
  positions_ = 0;
  BATON_CHECK(Intern(Config{{}, false, false, true}) == kDead, "the first configuration");
  BATON_CHECK(Intern(Config{{}, false, true, false}) == kAnything, "the second configuration");
  BATON_CHECK(Intern(Config{{}, true, true, false}) == kAnythingAfterCertain,
              "the third configuration");
  transitions_[kDead].fill(kDead);
  transitions_[kAnything].fill(kAnything);
  transitions_[kAnythingAfterCertain].fill(kAnything);
}

void RuleAutomaton::MakeRoom() {
  if (configs_.size() > kMaxConfigs / 2 || positions_ > kMaxPositions / 2 ||
      frames_.size() > kMaxFrames / 2) {
    Clear();
  }
}

size_t RuleAutomaton::bytes() const {
  size_t callers = 0;
  for (const auto& of_rule : callers_) callers += 1 + of_rule.size();
  return callers * sizeof(Caller) +
         configs_.size() * (sizeof(transitions_[0]) + sizeof(Config) + 64) +
         positions_ * sizeof(Position) + frames_.size() * 3 * sizeof(Frame);
}

RuleAutomaton::Id RuleAutomaton::Start(int32_t rule, int32_t state, const Repetition& caller) {
  const auto in_grammar = [&](int32_t of_rule, int32_t own) {
    return first_states_[static_cast<size_t>(of_rule)] + own;
  };
  Stack stack = -1 - rule;
  if (caller.rule >= 0) {
    const int32_t behind = in_grammar(caller.rule, caller.state);
    stack = Push({caller.rule, behind, caller.count, -1 - caller.rule});
  }
  const Position position = {rule, in_grammar(rule, state), 0, stack, true};
  return Intern(Config{{position}, true, false, false});
}

RuleAutomaton::Id RuleAutomaton::Intern(Config config) {
  const auto [at, added] = ids_.try_emplace(std::move(config), static_cast<Id>(configs_.size()));
  if (added) {
    configs_.push_back(&at->first);
    transitions_.emplace_back().fill(-1);
    certain_.push_back(at->first.certain ? 1 : 0);
    text_after_.emplace_back();
    positions_ += at->first.positions.size();
  }
  return at->second;
}

RuleAutomaton::Id RuleAutomaton::Compute(Id id, uint8_t byte) {
  const bool full =
      configs_.size() >= kMaxConfigs || positions_ >= kMaxPositions || frames_.size() >= kMaxFrames;
  if (work_ > work_limit_ || full) return kAnything;
  const Config& from = *configs_[static_cast<size_t>(id)];
  reached_.clear();
  seen_.clear();
  overflow_ = false;
  bool certain = false;
  int low = 0;  // the bytes from `low` to `high` lead to the same configuration
  int high = 255;
  for (const Position& position : from.positions) {
    for (const auto& edge : grammar_->complete_fsm.GetEdges(position.state)) {
      ++work_;
      if (!edge.IsCharRange()) continue;
      if (edge.min > byte) {  // the edges are sorted
        high = std::min(high, edge.min - 1);
        break;
      }
      if (edge.max < byte) {
        low = std::max(low, edge.max + 1);
        continue;
      }
      low = std::max(low, edge.min);
      high = std::min(high, edge.max);
      certain = certain || position.certain;
      Reach({position.rule, edge.target, 0, position.stack, position.certain}, 0);
    }
  }
  const bool dead = reached_.empty() && !from.vague;
  const Id to = dead ? kDead : Intern(Closed(certain, from.vague));
  auto& row = transitions_[static_cast<size_t>(id)];
  std::fill(row.begin() + low, row.begin() + high + 1, static_cast<int16_t>(to));
  return to;
}

RuleAutomaton::Config RuleAutomaton::Closed(bool certain, bool vague) {
  for (size_t next = 0; next < reached_.size(); ++next) Expand(Reached(reached_[next]));
  Config config = {{}, certain, vague || overflow_, false};
  for (const Reached& reached : reached_) {
    const auto edges = grammar_->complete_fsm.GetEdges(reached.position.state);
    const bool reads = std::any_of(
        edges.begin(), edges.end(), [](const auto& edge) { return edge.IsCharRange(); });
    if (reads) config.positions.push_back(reached.position);
  }
  std::ranges::sort(config.positions);
  const auto last = std::unique(config.positions.begin(), config.positions.end());
  config.positions.erase(last, config.positions.end());
  return config;
}

void RuleAutomaton::Reach(const Position& position, int fresh) {
  ++work_;
  if (reached_.size() >= kMaxReached) {
    overflow_ = true;
    return;
  }
  if (seen_.emplace(position, fresh > 0).second) reached_.push_back({position, fresh});
}

void RuleAutomaton::Expand(const Reached& from) {
  const Position& at = from.position;
  const auto& fsm = grammar_->complete_fsm;
  for (const auto& edge : fsm.GetEdges(at.state)) {
    ++work_;
    if (edge.IsEpsilon()) {
      Reach({at.rule, edge.target, 0, at.stack, at.certain}, from.fresh);
    } else if (edge.IsRuleRef()) {
      Call(from, edge.GetRefRuleId(), edge.target);
    } else if (edge.IsRepeatRef()) {
      const auto repeat = fsm.GetRepeatEdgeInfo(edge.GetAuxIndex());
      Repeat(from, repeat.RuleId(), edge.target, repeat.Lower(), repeat.Upper());
    } else if (edge.IsCharRange()) {
      break;  // the edges are sorted, and these come last
    }
  }
  // A rule that ends without a byte is what its caller treats as empty.
  if (from.fresh == 0 && IsEnd(at.rule, at.state)) EndRule(at);
}

void RuleAutomaton::Call(const Reached& from, int32_t rule, int32_t behind) {
  const Position& at = from.position;
  if (nullable_[static_cast<size_t>(rule)]) {
    Reach({at.rule, behind, 0, at.stack, at.certain}, from.fresh);
  }
  const bool tail = grammar_->complete_fsm.GetEdges(behind).size() == 0 && IsEnd(at.rule, behind);
  if (tail) {  // the called rule returns to where this one would
    Reach({rule, StartOf(rule), 0, at.stack, at.certain}, std::max(from.fresh, 1));
    return;
  }
  const Frame frame = {at.rule, behind, kNoCount, at.stack};
  const Stack stack = IsFreshCall(from, frame) ? -1 - rule : Push(frame);
  Reach({rule, StartOf(rule), 0, stack, at.certain}, from.fresh + 1);
}

void RuleAutomaton::Repeat(
    const Reached& from, int32_t rule, int32_t behind, int32_t least, int32_t most) {
  const Position& at = from.position;
  const bool nullable = nullable_[static_cast<size_t>(rule)];
  if (at.count == kUnknownCount || at.count >= least || nullable) {
    Reach({at.rule, behind, 0, at.stack, at.certain}, from.fresh);
  }
  if (at.count != kUnknownCount && at.count >= most) return;
  const Frame frame = {at.rule, at.state, at.count, at.stack};
  const Stack stack = IsFreshCall(from, frame) ? -1 - rule : Push(frame);
  Reach({rule, StartOf(rule), 0, stack, at.certain}, from.fresh + 1);
}

// Whether the same call was made since the last byte: the rule calls itself before it reads.
bool RuleAutomaton::IsFreshCall(const Reached& from, const Frame& frame) const {
  Stack stack = from.position.stack;
  for (int i = 0; i < from.fresh && stack >= 0; ++i) {
    const Frame& pushed = frames_[static_cast<size_t>(stack)];
    if (pushed.rule == frame.rule && pushed.state == frame.state) return true;
    stack = pushed.below;
  }
  return false;
}

RuleAutomaton::Stack RuleAutomaton::Push(const Frame& frame) {
  const auto [at, added] = frame_ids_.try_emplace(frame, static_cast<Stack>(frames_.size()));
  if (added) frames_.push_back(frame);
  return at->second;
}

void RuleAutomaton::EndRule(const Position& position) {
  if (position.stack >= 0) {
    ReturnTo(Frame(frames_[static_cast<size_t>(position.stack)]), position.certain);
    return;
  }
  const int32_t rule = -1 - position.stack;
  const auto& callers = callers_[static_cast<size_t>(rule)];
  const bool only = callers.size() == 1 && rule != grammar_->GetRootRuleId();
  for (const Caller& caller : callers) {
    const int32_t count = caller.repeats ? kUnknownCount : kNoCount;
    ReturnTo({caller.rule, caller.state, count, -1 - caller.rule},
             position.certain && only && !caller.repeats);
  }
}

void RuleAutomaton::ReturnTo(const Frame& frame, bool certain) {
  if (frame.count == kNoCount) {
    Reach({frame.rule, frame.state, 0, frame.below, certain}, 0);
    return;
  }
  if (frame.count == kUnknownCount) {
    Reach({frame.rule, frame.state, kUnknownCount, frame.below, false}, 0);
    return;
  }
  const auto& fsm = grammar_->complete_fsm;
  for (const auto& edge : fsm.GetEdges(frame.state)) {
    if (!edge.IsRepeatRef()) continue;
    const auto repeat = fsm.GetRepeatEdgeInfo(edge.GetAuxIndex());
    const int32_t count = frame.count + 1;
    if (count >= repeat.Lower() || nullable_[static_cast<size_t>(repeat.RuleId())]) {
      Reach({frame.rule, edge.target, 0, frame.below, certain}, 0);
    }
    if (count < repeat.Upper()) {
      Reach({frame.rule, frame.state, count, frame.below, certain}, 0);
    }
  }
}

bool RuleAutomaton::IsEnd(int32_t rule, int32_t state) const {
  const int32_t own = state - first_states_[static_cast<size_t>(rule)];
  return grammar_->per_rule_fsms[static_cast<size_t>(rule)]->GetFsm().IsEndState(own);
}

int32_t RuleAutomaton::StartOf(int32_t rule) const {
  return first_states_[static_cast<size_t>(rule)] +
         grammar_->per_rule_fsms[static_cast<size_t>(rule)]->GetFsm().GetStart();
}

bool RuleAutomaton::AllAllow(const std::vector<Id>& from,
                             uint8_t low,
                             uint8_t high,
                             std::vector<Id>& out) {
  for (const Id id : from) {
    for (int byte = low; byte <= high; ++byte) {
      const Id to = Next(id, static_cast<uint8_t>(byte));
      if (to == kDead || !certain(to)) return false;
      if (std::ranges::find(out, to) == out.end()) out.push_back(to);
    }
  }
  return true;
}

// Adds to `out` the configurations after each character of the class; false when one is not
// certain.
bool RuleAutomaton::AfterOne(Id id, TextClass text_class, std::vector<Id>& out) {
  const auto of_class = static_cast<size_t>(text_class);
  std::vector<Id> after;
  if (const Id next = text_after_[static_cast<size_t>(id)][of_class].next; next >= 0) {
    after.push_back(next);
  } else if (!AfterEach(id, text_class, after)) {
    return false;
  }
  if (after.size() == 1) text_after_[static_cast<size_t>(id)][of_class].next = after[0];
  for (const Id one : after) {
    if (std::ranges::find(out, one) == out.end()) out.push_back(one);
  }
  return true;
}

bool RuleAutomaton::AfterEach(Id id, TextClass text_class, std::vector<Id>& out) {
  for (uint8_t byte = 0x20; byte < 0x80; ++byte) {
    if (IsInClass(text_class, byte) && !AllAllow({id}, byte, byte, out)) return false;
  }
  if (text_class != TextClass::kPlain) return true;
  for (const Encoding& encoding : kEncodings) {
    std::vector<Id> at = {id};
    for (size_t i = 0; i < encoding.length; ++i) {
      std::vector<Id> next;
      const bool last = i + 1 == encoding.length;
      const ByteRange range = encoding.bytes[i];
      if (!AllAllow(at, range.low, range.high, last ? out : next)) return false;
      at = std::move(next);
    }
  }
  return true;
}

// Whether no character of the class may follow.
bool RuleAutomaton::NothingAfter(Id id, TextClass text_class) {
  for (int byte = 0x20; byte < 0x100; ++byte) {
    const bool first = byte < 0x80 ? IsInClass(text_class, static_cast<uint8_t>(byte))
                                   : text_class == TextClass::kPlain && byte >= 0xC2;
    if (first && Next(id, static_cast<uint8_t>(byte)) != kDead) return false;
  }
  return true;
}

// Searches, by the number of characters, the nearest configuration after which a character of the
// class is not certain.
RuleAutomaton::Text RuleAutomaton::TextAfter(Id id, TextClass text_class, int limit) {
  const auto of_class = static_cast<size_t>(text_class);
  const Text known = text_after_[static_cast<size_t>(id)][of_class];
  if (known.characters >= 0) return known;
  absl::flat_hash_set<Id> seen = {id};
  std::vector<Id> at = {id};
  Text text = {.characters = 0};
  bool loops = false;  // a text of another length leads to the same configuration
  for (; text.characters < limit && seen.size() < kMaxTextVisits; ++text.characters) {
    std::vector<Id> after;
    const auto all = [&](Id one) { return AfterOne(one, text_class, after); };
    if (!std::ranges::all_of(at, all)) {
      const auto none = [&](Id one) { return NothingAfter(one, text_class); };
      text.most = !loops && std::ranges::all_of(at, none);
      break;
    }
    const auto repeated = [&](Id one) { return !seen.insert(one).second; };
    loops = std::erase_if(after, repeated) > 0 || loops;
    if (after.empty()) text.characters = limit - 1;  // no other configuration is in reach
    at = std::move(after);
  }
  text.next = text_after_[static_cast<size_t>(id)][of_class].next;
  text_after_[static_cast<size_t>(id)][of_class] = text;
  return text;
}

}  // namespace baton
