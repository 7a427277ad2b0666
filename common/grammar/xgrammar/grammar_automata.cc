#include "common/grammar/xgrammar/grammar_automata.h"

#include <fsm.h>
#include <grammar_functor.h>
#include <grammar_impl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace baton {
namespace {

using Expr = xgrammar::Grammar::Impl::GrammarExpr;
using ExprType = xgrammar::Grammar::Impl::GrammarExprType;

constexpr int32_t kLastAscii = 0x7F;

// Whether an element of a sequence is a path of states, each with edges to the next one only.
bool IsPath(const Expr& element) {
  if (element.type == ExprType::kByteString) return element.size() > 0;
  if (element.type == ExprType::kRuleRef) return true;
  if (element.type != ExprType::kCharacterClass || element[0] != 0) return false;
  return std::all_of(
      element.begin() + 1, element.end(), [](int32_t bound) { return bound <= kLastAscii; });
}

bool HasPaths(const xgrammar::Grammar& grammar, const Expr& body) {
  if (body.type != ExprType::kChoices) return false;
  return std::ranges::all_of(body, [&](int32_t choice) {
    const Expr sequence = grammar->GetGrammarExpr(choice);
    if (sequence.type == ExprType::kEmptyStr) return true;
    return sequence.type == ExprType::kSequence &&
           std::ranges::all_of(
               sequence, [&](int32_t element) { return IsPath(grammar->GetGrammarExpr(element)); });
  });
}

// Adds the path of `element` from one state to another.
void AddPath(const Expr& element, int32_t from, int32_t to, xgrammar::FSM& fsm) {
  if (element.type == ExprType::kRuleRef) return fsm.AddRuleEdge(from, to, element[0]);
  if (element.type == ExprType::kCharacterClass) {
    for (int32_t i = 1; i + 1 < element.size(); i += 2) {
      fsm.AddEdge(from, to, element[i], element[i + 1]);
    }
    return;
  }
  for (int32_t i = 0; i < element.size(); ++i) {
    const int32_t next = i + 1 < element.size() ? fsm.AddState() : to;
    const auto byte = static_cast<uint8_t>(element[i]);
    fsm.AddEdge(from, next, byte, byte);
    from = next;
  }
}

xgrammar::FSMWithStartEnd AutomatonOf(const xgrammar::Grammar& grammar, const Expr& body) {
  if (!HasPaths(grammar, body)) return *xgrammar::GrammarFSMBuilder::Choices(body, grammar);
  constexpr int32_t kStart = 0;
  constexpr int32_t kEnd = 1;  // of all choices that are not empty
  xgrammar::FSM fsm(kStart + 1);
  std::vector<int32_t> ends;
  int32_t paths = 0;
  for (const int32_t choice : body) {
    const Expr sequence = grammar->GetGrammarExpr(choice);
    if (sequence.size() == 0) ends.push_back(kStart);
    if (sequence.size() > 0 && ++paths == 1) ends.push_back(fsm.AddState());
    int32_t from = kStart;
    for (int32_t i = 0; i < sequence.size(); ++i) {
      const int32_t to = i + 1 < sequence.size() ? fsm.AddState() : kEnd;
      AddPath(grammar->GetGrammarExpr(sequence[i]), from, to, fsm);
      from = to;
    }
  }
  const xgrammar::FSMWithStartEnd automaton(fsm, kStart, std::move(ends));
  return paths <= 1 ? automaton : automaton.MergeEquivalentStates();
}

// Writes calls of rules of one character or none into the calling rules. White space between the
// tokens of JSON is such a rule, which nearly all others call: behind its end, a mask would have to
// follow all of them.
class OptionalCharacters {
 public:
  explicit OptionalCharacters(xgrammar::Grammar& grammar)
      : grammar_(grammar), fsm_(grammar->complete_fsm) {
    for (const auto& of_rule : grammar->per_rule_fsms) {
      optional_.push_back(IsOptionalCharacter(of_rule->GetFsm()));
    }
  }

  void Inline() {
    if (std::ranges::find(optional_, true) == optional_.end()) return;
    std::vector<std::vector<int32_t>> ends;
    int32_t state = 0;
    for (const auto& of_rule : grammar_->per_rule_fsms) {
      ends.push_back(of_rule->GetFsm().GetEnds());
      const int32_t behind = state + of_rule->GetNodeNum();
      for (; state < behind; ++state) {
        if (InlineInto(state, of_rule->GetFsm())) ends.back().push_back(state);
      }
    }
    const xgrammar::CompactFSM inlined(
        xgrammar::Compact2DArray<xgrammar::FSMEdge>::FromDataAndIndptr(std::move(edges_),
                                                                       std::move(ends_of_states_)),
        fsm_.GetEdgeAuxData());
    for (size_t rule = 0; rule < ends.size(); ++rule) {
      auto& of_rule = grammar_->per_rule_fsms[rule];
      of_rule.emplace(
          xgrammar::CompactFSMWithStartEnd(inlined, of_rule->GetFsm().GetStart(), ends[rule]),
          of_rule->GetEdgeNum(),
          of_rule->GetNodeNum());
    }
    grammar_->complete_fsm = inlined;
  }

 private:
  static bool IsOptionalCharacter(const xgrammar::CompactFSMWithStartEnd& rule) {
    const auto edges = rule.GetFsm().GetEdges(rule.GetStart());
    return edges.size() > 0 && rule.IsEndState(rule.GetStart()) &&
           std::all_of(edges.begin(), edges.end(), [&](const xgrammar::FSMEdge& edge) {
             return edge.IsCharRange() && rule.IsEndState(edge.target) &&
                    rule.GetFsm().GetEdges(edge.target).size() == 0;
           });
  }

  bool IsOptional(const xgrammar::FSMEdge& edge) const {
    return edge.IsRuleRef() && optional_[static_cast<size_t>(edge.GetRefRuleId())];
  }

  // Adds the edges of a state. True when the rule may now end there, because only optional
  // characters were between the state and an end.
  bool InlineInto(int32_t state, const xgrammar::CompactFSMWithStartEnd& rule) {
    reached_.assign(1, state);
    const auto begin = static_cast<std::ptrdiff_t>(edges_.size());
    bool ends = false;
    for (size_t next = 0; next < reached_.size(); ++next) {
      ends = ends || rule.IsEndState(reached_[next]);
      for (const xgrammar::FSMEdge& edge : fsm_.GetEdges(reached_[next])) {
        if (!IsOptional(edge)) {
          edges_.push_back(edge);
          continue;
        }
        AddCharacters(edge);
        if (std::ranges::find(reached_, edge.target) == reached_.end()) {
          reached_.push_back(edge.target);
        }
      }
    }
    if (reached_.size() > 1) {
      std::sort(edges_.begin() + begin, edges_.end());
      edges_.erase(std::unique(edges_.begin() + begin, edges_.end()), edges_.end());
    }
    ends_of_states_.push_back(static_cast<int32_t>(edges_.size()));
    return ends && !rule.IsEndState(state);
  }

  void AddCharacters(const xgrammar::FSMEdge& call) {
    const auto rule = static_cast<size_t>(call.GetRefRuleId());
    const int32_t start = grammar_->per_rule_fsms[rule]->GetFsm().GetStart();
    for (const xgrammar::FSMEdge& edge : fsm_.GetEdges(start)) {
      edges_.emplace_back(edge.min, edge.max, call.target);
    }
  }

  xgrammar::Grammar& grammar_;
  const xgrammar::CompactFSM fsm_;
  std::vector<bool> optional_;            // by rule: it is one character or none
  std::vector<xgrammar::FSMEdge> edges_;  // of all states
  std::vector<int32_t> ends_of_states_ = {0};
  std::vector<int32_t> reached_;  // used by InlineInto
};

bool HasExpressions(const xgrammar::Grammar& grammar) {
  for (int32_t rule = 0; rule < grammar->NumRules(); ++rule) {
    const int32_t body = grammar->GetRule(rule).body_expr_id;
    if (grammar->GetGrammarExpr(body).type == ExprType::kRegex) return true;
  }
  return false;
}

void BuildPlainAutomata(xgrammar::Grammar& grammar) {
  xgrammar::FSM all;
  std::vector<xgrammar::FSMWithStartEndWithSize> of_rules;
  std::vector<int> states;
  for (int32_t rule = 0; rule < grammar->NumRules(); ++rule) {
    const Expr body = grammar->GetGrammarExpr(grammar->GetRule(rule).body_expr_id);
    of_rules.push_back(AutomatonOf(grammar, body).AddToCompleteFSM(&all, &states));
  }
  grammar->complete_fsm = all.ToCompact();
  grammar->per_rule_fsms.clear();
  for (const auto& of_rule : of_rules) {
    const auto& fsm = of_rule.GetFsm();
    grammar->per_rule_fsms.emplace_back(xgrammar::CompactFSMWithStartEndWithSize(
        xgrammar::CompactFSMWithStartEnd(grammar->complete_fsm, fsm.GetStart(), fsm.GetEnds()),
        of_rule.GetEdgeNum(),
        of_rule.GetNodeNum()));
  }
}

}  // namespace

void BuildAutomata(xgrammar::Grammar& grammar) {
  // Only the whole builder adds the rules that the repetitions of regular expressions need.
  if (HasExpressions(grammar)) {
    xgrammar::GrammarFSMBuilder::Apply(&grammar);
  } else {
    BuildPlainAutomata(grammar);
  }
  OptionalCharacters(grammar).Inline();
}

}  // namespace baton
