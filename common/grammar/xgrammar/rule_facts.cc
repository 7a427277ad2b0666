#include "common/grammar/xgrammar/rule_facts.h"

#include <fsm.h>
#include <grammar_impl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/grammar/horn_clauses.h"

namespace baton {
namespace {

using ExprType = xgrammar::Grammar::Impl::GrammarExprType;
using Expr = xgrammar::Grammar::Impl::GrammarExpr;

constexpr int32_t kLastCodePoint = 0x10FFFF;

Status NoOutput() {
  return InvalidArgument(
      "the grammar allows no output: whatever is written, the output can never be complete");
}

// Whether a class contains a character. Its data: whether it is negated, and its ranges.
bool HasCharacter(const Expr& character_class) {
  std::vector<std::pair<int32_t, int32_t>> ranges;
  for (int32_t i = 1; i + 1 < character_class.size(); i += 2) {
    ranges.emplace_back(character_class[i], character_class[i + 1]);
  }
  if (character_class[0] == 0) return !ranges.empty();
  std::ranges::sort(ranges);
  int32_t free = 0;  // the first character behind the ranges so far
  for (const auto& [low, high] : ranges) {
    if (low > free) return true;
    free = std::max(free, high + 1);
  }
  return free <= kLastCodePoint;
}

// States when the expression `id` can be written completely. The facts are the rules, then the
// expressions.
void AddExpression(const xgrammar::Grammar& grammar, int32_t id, HornClauses& clauses) {
  const int32_t rules = grammar->NumRules();
  const Expr expr = grammar->GetGrammarExpr(id);
  const int32_t head = rules + id;
  std::vector<int32_t> parts(expr.begin(), expr.end());
  switch (expr.type) {
    case ExprType::kCharacterClass:
      if (HasCharacter(expr)) clauses.Add(head, {});
      return;
    case ExprType::kRuleRef:
      return clauses.Add(head, {expr[0]});
    case ExprType::kRepeat:
      if (expr[1] == 0) return clauses.Add(head, {});
      return clauses.Add(head, {expr[0]});
    case ExprType::kSequence:
      for (int32_t& part : parts) part += rules;
      return clauses.Add(head, parts);
    case ExprType::kChoices:
      for (const int32_t part : parts) clauses.Add(head, {rules + part});
      return;
    case ExprType::kTagDispatch: {
      std::vector<int32_t> called;
      for (const auto& [tag, rule] : grammar->GetTagDispatch(expr).tag_rule_pairs) {
        called.push_back(rule);
      }
      return clauses.Add(head, called);
    }
    default:
      return clauses.Add(head, {});
  }
}

// The rule that an edge calls and must complete, or -1.
int32_t CalledRule(const xgrammar::CompactFSM& fsm, const xgrammar::FSMEdge& edge) {
  if (edge.IsRuleRef()) return edge.GetRefRuleId();
  if (!edge.IsRepeatRef()) return -1;
  const auto repeat = fsm.GetRepeatEdgeInfo(edge.GetAuxIndex());
  return repeat.Lower() == 0 ? -1 : repeat.RuleId();
}

int32_t StartOf(const xgrammar::Grammar& grammar, int32_t rule) {
  return grammar->per_rule_fsms[static_cast<size_t>(rule)]->GetFsm().GetStart();
}

// For each state, whether its rule can be completed from there; `empty`: without a byte.
std::vector<bool> EndingStates(const xgrammar::Grammar& grammar, bool empty) {
  const xgrammar::CompactFSM& fsm = grammar->complete_fsm;
  HornClauses clauses(fsm.NumStates());
  for (const auto& of_rule : grammar->per_rule_fsms) {
    for (const int32_t end : of_rule->GetFsm().GetEnds()) clauses.Add(end, {});
  }
  for (int32_t state = 0; state < fsm.NumStates(); ++state) {
    for (const xgrammar::FSMEdge& edge : fsm.GetEdges(state)) {
      const int32_t called = CalledRule(fsm, edge);
      if (called >= 0) {
        clauses.Add(state, {edge.target, StartOf(grammar, called)});
      } else if (!empty || !edge.IsCharRange()) {
        clauses.Add(state, {edge.target});
      }
    }
  }
  return clauses.Derive();
}

// The edges of a state that lead to an end. A repetition of what can never be complete is left out
// where it need not take place.
std::vector<xgrammar::FSMEdge> LiveEdges(const xgrammar::Grammar& grammar,
                                         int32_t state,
                                         const std::vector<bool>& live) {
  const xgrammar::CompactFSM& fsm = grammar->complete_fsm;
  std::vector<xgrammar::FSMEdge> edges;
  for (const xgrammar::FSMEdge& edge : fsm.GetEdges(state)) {
    if (!live[static_cast<size_t>(edge.target)]) continue;
    int32_t called = CalledRule(fsm, edge);
    if (called >= 0 && !live[static_cast<size_t>(StartOf(grammar, called))]) continue;
    if (edge.IsRepeatRef()) called = fsm.GetRepeatEdgeInfo(edge.GetAuxIndex()).RuleId();
    const bool left_out = called >= 0 && !live[static_cast<size_t>(StartOf(grammar, called))];
    edges.push_back(
        left_out ? xgrammar::FSMEdge(xgrammar::FSMEdge::EdgeType::kEpsilon, 0, edge.target) : edge);
  }
  return edges;
}

}  // namespace

Status CheckAllowsOutput(const xgrammar::Grammar& parsed) {
  const int32_t rules = parsed->NumRules();
  HornClauses clauses(rules + parsed->NumGrammarExprs());
  for (int32_t rule = 0; rule < rules; ++rule) {
    clauses.Add(rule, {rules + parsed->GetRule(rule).body_expr_id});
  }
  for (int32_t id = 0; id < parsed->NumGrammarExprs(); ++id) AddExpression(parsed, id, clauses);
  return clauses.Derive()[static_cast<size_t>(parsed->GetRootRuleId())] ? OkStatus() : NoOutput();
}

Status RemoveDeadEnds(xgrammar::Grammar& grammar) {
  const std::vector<bool> live = EndingStates(grammar, /*empty=*/false);
  if (!live[static_cast<size_t>(StartOf(grammar, grammar->GetRootRuleId()))]) return NoOutput();
  if (std::ranges::find(live, false) == live.end()) return OkStatus();
  xgrammar::Compact2DArray<xgrammar::FSMEdge> edges;
  for (int32_t state = 0; state < grammar->complete_fsm.NumStates(); ++state) {
    edges.PushBack(LiveEdges(grammar, state, live));
  }
  const xgrammar::CompactFSM pruned(std::move(edges), grammar->complete_fsm.GetEdgeAuxData());
  for (auto& of_rule : grammar->per_rule_fsms) {
    const auto& fsm = of_rule->GetFsm();
    of_rule.emplace(xgrammar::CompactFSMWithStartEnd(pruned, fsm.GetStart(), fsm.GetEnds()),
                    of_rule->GetEdgeNum(),
                    of_rule->GetNodeNum());
  }
  grammar->complete_fsm = pruned;
  return OkStatus();
}

void FindEmptyRules(xgrammar::Grammar& grammar) {
  xgrammar::CompactFSM& fsm = grammar->complete_fsm;
  const std::vector<bool> ending = EndingStates(grammar, /*empty=*/true);
  const auto empty = [&](int32_t rule) {
    return ending[static_cast<size_t>(StartOf(grammar, rule))];
  };
  grammar->allow_empty_rule_ids.clear();
  for (int32_t rule = 0; rule < grammar->NumRules(); ++rule) {
    if (empty(rule)) grammar->allow_empty_rule_ids.push_back(rule);
  }
  std::vector<int32_t> data = fsm.GetEdgeAuxData();
  for (int32_t state = 0; state < fsm.NumStates(); ++state) {
    for (const xgrammar::FSMEdge& edge : fsm.GetEdges(state)) {
      if (!edge.IsRepeatRef()) continue;
      const auto at = static_cast<size_t>(edge.GetAuxIndex());  // of the rule, the least, the most
      if (empty(data[at])) data[at + 1] = 0;
    }
  }
  fsm.SetEdgeAuxData(std::move(data));
}

}  // namespace baton
