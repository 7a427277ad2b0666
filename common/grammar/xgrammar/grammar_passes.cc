#include "common/grammar/xgrammar/grammar_passes.h"

#include <grammar_builder.h>
#include <grammar_functor.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/grammar/xgrammar/equal_rules.h"
#include "common/grammar/xgrammar/grammar_automata.h"
#include "common/grammar/xgrammar/rule_facts.h"

namespace baton {
namespace {

using ExprType = xgrammar::Grammar::Impl::GrammarExprType;

// Of a parsed grammar: rules, and numbers in its expressions.
constexpr int64_t kMaxRules = 30'000;
constexpr int64_t kMaxExpressions = 400'000;
// Elements of the choices into which others are inlined.
constexpr int64_t kMaxInlined = 100'000;
// The symbols (bytes, classes, calls) of the choices of one rule, multiplied by the longest
// beginning or end that two of them have in common: XGrammar merges these symbol by symbol, and
// each time visits all. It does not merge those of a rule with more than kMaxMergedStates.
constexpr int64_t kMaxMerged = 2'000'000;
constexpr int64_t kMaxMergedStates = 100'000;

Status TooLarge(const char* what, int64_t size, int64_t limit) {
  return InvalidArgument(
      "the grammar is too large: {} {}; at most {} are supported", size, what, limit);
}

// Makes a rule of each repetition, because a state of an automaton that repeats must have no other
// edge.
class RepetitionRules {
 public:
  explicit RepetitionRules(xgrammar::Grammar& grammar)
      : builder_(xgrammar::GrammarBuilder::FromMutableGrammar(&grammar)) {}

  void Add() {
    const int32_t exprs = builder_.NumGrammarExprs();
    for (int32_t id = 0; id < exprs; ++id) {
      if (builder_.GetGrammarExpr(id).type != ExprType::kSequence) continue;
      for (int32_t i = 0; i < builder_.GetGrammarExpr(id).size(); ++i) {
        const int32_t element = builder_.GetGrammarExpr(id)[i];
        if (builder_.GetGrammarExpr(element).type != ExprType::kRepeat) continue;
        const int32_t call = CallOf(builder_.GetGrammarExpr(element));  // may move the expressions
        builder_.GetGrammarExpr(id).SetData(i, call);
      }
    }
  }

 private:
  int32_t CallOf(const xgrammar::Grammar::Impl::GrammarExpr& repeat) {
    const int32_t most = repeat[2] < 0 ? std::numeric_limits<int32_t>::max() : repeat[2];
    const std::tuple key(repeat[0], repeat[1], most);
    const auto [at, added] = calls_.try_emplace(key, -1);
    if (added) {
      const int32_t counter = builder_.AddRepeat(repeat[0], repeat[1], most);
      const int32_t body = builder_.AddChoices({builder_.AddSequence({counter})});
      at->second = builder_.AddRuleRef(builder_.AddRuleWithHint("repeat", body));
    }
    return at->second;
  }

  xgrammar::GrammarBuilder builder_;
  std::map<std::tuple<int32_t, int32_t, int32_t>, int32_t> calls_;  // of the rule of a repetition
};

// The elements that inlining would copy: a choice that begins with a rule becomes as many choices
// as the rule has.
int64_t InlinedSize(const xgrammar::Grammar& grammar) {
  int64_t copied = 0;
  for (int32_t rule = 0; rule < grammar->NumRules(); ++rule) {
    const auto body = grammar->GetGrammarExpr(grammar->GetRule(rule).body_expr_id);
    if (body.type != ExprType::kChoices) continue;
    for (const int32_t choice : body) {
      const auto sequence = grammar->GetGrammarExpr(choice);
      if (sequence.type != ExprType::kSequence || sequence.size() == 0) continue;
      const auto first = grammar->GetGrammarExpr(sequence[0]);
      if (first.type != ExprType::kRuleRef) continue;
      const auto inlined = grammar->GetGrammarExpr(grammar->GetRule(first[0]).body_expr_id);
      if (inlined.type == ExprType::kChoices) {
        copied += static_cast<int64_t>(inlined.size()) * sequence.size();
      }
    }
  }
  return copied;
}

// The elements of a sequence as symbols: equal elements are equal symbols.
std::u32string SymbolsOf(const xgrammar::Grammar& grammar, int32_t sequence) {
  std::u32string symbols;
  for (const int32_t element : grammar->GetGrammarExpr(sequence)) {
    const auto expr = grammar->GetGrammarExpr(element);
    if (expr.type == ExprType::kByteString) {
      for (const int32_t byte : expr) symbols += static_cast<char32_t>(byte);
      continue;
    }
    auto hash = static_cast<uint32_t>(expr.type) + 1000;
    for (const int32_t value : expr) hash = hash * 1'000'003 + static_cast<uint32_t>(value);
    symbols += static_cast<char32_t>(hash);
  }
  return symbols;
}

// The longest beginning or end that two texts have in common.
size_t LongestShared(std::vector<std::u32string> texts) {
  size_t longest = 0;
  for (int turn = 0; turn < 2; ++turn) {
    std::ranges::sort(texts);
    for (size_t i = 1; i < texts.size(); ++i) {
      const auto differs = std::ranges::mismatch(texts[i - 1], texts[i]).in1;
      longest = std::max(longest, static_cast<size_t>(differs - texts[i - 1].begin()));
    }
    for (std::u32string& text : texts) std::ranges::reverse(text);
  }
  return longest;
}

// The work of merging the choices of one rule, as kMaxMerged counts it.
int64_t MergedSize(const xgrammar::Grammar& grammar, int32_t rule) {
  const auto body = grammar->GetGrammarExpr(grammar->GetRule(rule).body_expr_id);
  if (body.type != ExprType::kChoices || body.size() < 2) return 0;
  std::vector<std::u32string> texts;
  int64_t symbols = 0;
  for (const int32_t choice : body) {
    if (grammar->GetGrammarExpr(choice).type != ExprType::kSequence) continue;
    texts.push_back(SymbolsOf(grammar, choice));
    symbols += static_cast<int64_t>(texts.back().size());
  }
  if (symbols > kMaxMergedStates) return 0;
  return symbols * static_cast<int64_t>(LongestShared(std::move(texts)));
}

// When a rule ends with a call of another, the parser lets the called rule return to the first
// one's caller, and then forgets to count if that caller repeats the first one. It does not do so
// for rules with a capture, and records captures only where they are wanted.
void CountRepeatedRules(xgrammar::Grammar& grammar) {
  const auto& fsm = grammar->complete_fsm;
  for (int32_t state = 0; state < fsm.NumStates(); ++state) {
    for (const auto& edge : fsm.GetEdges(state)) {
      if (!edge.IsRepeatRef()) continue;
      grammar->GetRule(fsm.GetRepeatEdgeInfo(edge.GetAuxIndex()).RuleId()).capture_name =
          "repeated";
    }
  }
}

// Gives each rule an automaton of its own, whose states count from 0. A parser keeps a byte for
// each state of the automaton of each rule that it has met: with one automaton for all rules, their
// number times all states.
void SeparateRules(xgrammar::Grammar& grammar) {
  int32_t first = 0;
  for (auto& of_rule : grammar->per_rule_fsms) {
    const int32_t states = of_rule->GetNodeNum();
    std::vector<xgrammar::FSMEdge> own;
    std::vector<int32_t> ends_of_states = {0};
    for (int32_t state = first; state < first + states; ++state) {
      for (xgrammar::FSMEdge edge : grammar->complete_fsm.GetEdges(state)) {
        edge.target -= first;
        own.push_back(edge);
      }
      ends_of_states.push_back(static_cast<int32_t>(own.size()));
    }
    auto edges = xgrammar::Compact2DArray<xgrammar::FSMEdge>::FromDataAndIndptr(
        std::move(own), std::move(ends_of_states));
    std::vector<int32_t> ends = of_rule->GetFsm().GetEnds();
    for (int32_t& end : ends) end -= first;
    const xgrammar::CompactFSMWithStartEnd separate(xgrammar::CompactFSM(std::move(edges)),
                                                    of_rule->GetFsm().GetStart() - first,
                                                    std::move(ends));
    of_rule.emplace(separate, of_rule->GetEdgeNum(), states);
    first += states;
  }
}

}  // namespace

Status CheckOptimisingCost(const xgrammar::Grammar& grammar) {
  if (grammar->NumRules() > kMaxRules) return TooLarge("rules", grammar->NumRules(), kMaxRules);
  if (grammar->NumGrammarExprs() > kMaxExpressions) {
    return TooLarge("expressions", grammar->NumGrammarExprs(), kMaxExpressions);
  }
  if (const int64_t copied = InlinedSize(grammar); copied > kMaxInlined) {
    return TooLarge("elements of choices that begin with a rule", copied, kMaxInlined);
  }
  for (int32_t rule = 0; rule < grammar->NumRules(); ++rule) {
    if (const int64_t merged = MergedSize(grammar, rule); merged > kMaxMerged) {
      return TooLarge(
          "bytes of choices times the bytes that two have in common", merged, kMaxMerged);
    }
  }
  return OkStatus();
}

StatusOr<xgrammar::Grammar> Optimised(xgrammar::Grammar grammar) {
  BATON_RETURN_IF_ERROR(CheckOptimisingCost(grammar));
  ShareEqualRules(grammar);
  // The passes of xgrammar::GrammarOptimizer.
  xgrammar::ByteStringFuser::Apply(&grammar);
  xgrammar::RuleInliner::Apply(&grammar);
  grammar = xgrammar::DeadCodeEliminator::Apply(grammar);
  RepetitionRules(grammar).Add();
  BuildAutomata(grammar);
  BATON_RETURN_IF_ERROR(RemoveDeadEnds(grammar));
  FindEmptyRules(grammar);
  CountRepeatedRules(grammar);
  SeparateRules(grammar);
  grammar->optimized = true;
  return grammar;
}

}  // namespace baton
