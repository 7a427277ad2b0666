// What the passes over a parsed grammar leave of its rules, and the automata that they make of
// them.
#include "common/grammar/xgrammar/grammar_passes.h"

#include <fsm.h>
#include <grammar_functor.h>
#include <grammar_impl.h>

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/grammar/xgrammar/grammar_automata.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;
using xgrammar::Grammar;

int RulesOf(Grammar parsed) {
  return (*Optimised(std::move(parsed)))->NumRules();
}

int RulesOf(const char* ebnf) {
  return RulesOf(Grammar::FromEBNF(ebnf));
}

TEST(GrammarPasses, EqualRulesBecomeOne) {
  EXPECT_EQ(RulesOf("root ::= \"<\" a \",\" b \">\"\n"
                    "a ::= \"a\" c\nb ::= \"a\" d\nc ::= \"\" | [0-9]\nd ::= \"\" | [0-9]"),
            3);  // root, b, d
  EXPECT_EQ(RulesOf("root ::= \"<\" a{2,3} \",\" b{2,3} \">\"\n"
                    "a ::= \"a\" c\nb ::= \"a\" d\nc ::= \"\" | [0-9]\nd ::= \"\" | [0-9]"),
            4);  // and their repetition
  EXPECT_EQ(RulesOf("root ::= \"<\" a \",\" b \">\"\nc ::= \"\" | [0-9]\nd ::= \"\" | [0-9]\n"
                    "a ::= \"a\" c \"a\"\nb ::= \"b\" d \"b\""),
            4);  // root, a, b, d: the calls of c come last
}

TEST(GrammarPasses, OtherRulesStay) {
  EXPECT_EQ(RulesOf("root ::= \"<\" a \",\" b \">\"\n"
                    "a ::= \"a\" c\nb ::= \"a\" d\nc ::= \"\" | [0-9]\nd ::= \"\" | [0-8]"),
            5);
  EXPECT_EQ(RulesOf("root ::= \"<\" a \",\" b \">\"\n"
                    "a ::= \"a\" c\nb ::= \"a\" d\nc ::= \"\" | [0-9]\nd ::= \"\" | [0-9]*"),
            5);
  EXPECT_EQ(RulesOf("root ::= \"<\" a \",\" b \">\"\n"
                    "a ::= \"a\" c{2,3}\nb ::= \"a\" c{2,4}\nc ::= \"\" | [0-9]"),
            6);  // root, a, b, c and two repetitions
}

// White space is the same everywhere: for each property there is one rule, and not five.
TEST(GrammarPasses, PropertiesShareTheirWhiteSpace) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
  for (int i = 0; i < 20; ++i) {
    schema["properties"][fmt::format("p{}", i)] = {{"type", "boolean"}};
    schema["required"].push_back(fmt::format("p{}", i));
  }
  const Grammar parsed = Grammar::FromJSONSchema(
      schema.dump(), true, std::nullopt, std::nullopt, true, /*max_whitespace_cnt=*/1);
  EXPECT_GT(parsed->NumRules(), 100);
  EXPECT_LT(RulesOf(parsed), 25);
}

using States = std::unordered_set<int>;
using EdgeType = xgrammar::FSMEdge::EdgeType;

// A symbol of an automaton: a byte, a call of a rule, or a repetition.
struct Symbol {
  EdgeType type;
  int value;
};

std::vector<Symbol> SymbolsOf(const Grammar& grammar) {
  std::vector<Symbol> symbols = {{EdgeType::kRepeatRef, 0}};
  for (int byte = 0; byte < 256; ++byte) symbols.push_back({EdgeType::kCharRange, byte});
  for (int rule = 0; rule < grammar->NumRules(); ++rule) {
    symbols.push_back({EdgeType::kRuleRef, rule});
  }
  return symbols;
}

// The states of one rule that a text of symbols leads to.
class Walk {
 public:
  Walk(const Grammar& grammar, int rule)
      : fsm_(grammar->per_rule_fsms[static_cast<size_t>(rule)]->GetFsm()),
        states_{fsm_.GetStart()} {
    fsm_.GetFsm().GetEpsilonClosure(&states_);
  }
  Walk After(const Symbol& symbol) const {
    Walk next = *this;
    fsm_.GetFsm().Advance(
        states_, symbol.value, &next.states_, symbol.type, /*from_is_closure=*/true);
    return next;
  }
  bool AtEnd() const {
    return std::ranges::any_of(states_, [&](int state) { return fsm_.IsEndState(state); });
  }
  bool empty() const { return states_.empty(); }
  std::set<int> states() const { return {states_.begin(), states_.end()}; }

 private:
  xgrammar::CompactFSMWithStartEnd fsm_;
  States states_;
};

// Whether two automata take the same texts.
bool AreEqual(const Walk& first, const Walk& second, const std::vector<Symbol>& symbols) {
  std::set<std::pair<std::set<int>, std::set<int>>> known;
  std::vector<std::pair<Walk, Walk>> waiting = {{first, second}};
  while (!waiting.empty()) {
    const auto [ours, theirs] = waiting.back();
    waiting.pop_back();
    if (ours.AtEnd() != theirs.AtEnd() || ours.empty() != theirs.empty()) return false;
    if (!known.emplace(ours.states(), theirs.states()).second) continue;
    for (const Symbol& symbol : symbols) {
      waiting.emplace_back(ours.After(symbol), theirs.After(symbol));
    }
  }
  return true;
}

int StatesOf(const Grammar& grammar, int rule) {
  return grammar->per_rule_fsms[static_cast<size_t>(rule)]->GetNodeNum();
}

TEST(GrammarPasses, AutomataAreThoseOfXGrammar) {
  for (const char* ebnf :
       {"root ::= \"abc\"",
        "root ::= \"\"",
        "root ::= \"\" | \"abc\" root | \"abd\" | \"xd\"",
        "root ::= \"1\" a \"2\" | \"1\" a \"3\" | a\na ::= \"\" | [a-cx-z] [0-9] \"q\"",
        "root ::= [é] a | \"éa\" | [à-ÿ] | [^a] | [^\\x00-\\U0010FFFF]\na ::= [a-zé]",
        "root ::= [é] | \"a\" [é] \"b\" | \"éb\"",
        "root ::= [a-z]* \"x\" | [0-9]* [a-z]*",
        "root ::= \"a\" b{2,5} \"c\" | b\nb ::= \"b\" | [b] [b] | \"\"",
        "root ::= [ab] | \"a\" | \"b\" | [ab] \"c\" | \"a\" \"d\""}) {
    Grammar ours = Grammar::FromEBNF(ebnf);
    Grammar theirs = Grammar::FromEBNF(ebnf);
    BuildAutomata(ours);
    xgrammar::GrammarFSMBuilder::Apply(&theirs);
    ASSERT_EQ(ours->per_rule_fsms.size(), theirs->per_rule_fsms.size());
    for (int rule = 0; rule < ours->NumRules(); ++rule) {
      EXPECT_TRUE(AreEqual(Walk(ours, rule), Walk(theirs, rule), SymbolsOf(ours)))
          << ebnf << ": rule " << rule;
      EXPECT_LE(StatesOf(ours, rule), StatesOf(theirs, rule)) << ebnf << ": rule " << rule;
    }
  }
}

// Whether the root rules of two grammars take the same texts of bytes and calls.
bool RootsAreEqual(const char* ebnf, const char* other_ebnf) {
  Grammar grammar = Grammar::FromEBNF(ebnf);
  Grammar other = Grammar::FromEBNF(other_ebnf);
  BuildAutomata(grammar);
  BuildAutomata(other);
  return AreEqual(Walk(grammar, grammar->GetRootRuleId()),
                  Walk(other, other->GetRootRuleId()),
                  SymbolsOf(grammar));
}

TEST(GrammarPasses, RulesOfOneCharacterOrNoneAreWrittenIntoTheirCallers) {
  EXPECT_TRUE(RootsAreEqual(
      "root ::= \"a\" c \"b\" c\nc ::= \"\" | [0-9x]",
      "root ::= \"ab\" | \"a\" [0-9x] \"b\" | \"ab\" [0-9x] | \"a\" [0-9x] \"b\" [0-9x]"));
  EXPECT_TRUE(
      RootsAreEqual("root ::= \"a\" c c | c \"b\"\nc ::= \"\" | [0-9]",
                    "root ::= \"a\" | \"a\" [0-9] | \"a\" [0-9] [0-9] | \"b\" | [0-9] \"b\""));
}

TEST(GrammarPasses, OtherRulesAreCalled) {
  for (const char* called : {"[0-9]", "\"\" | [0-9] \"x\"", "\"\" | [0-9] c", "\"\" | d"}) {
    Grammar grammar =
        Grammar::FromEBNF(fmt::format("root ::= \"a\" c \"b\"\nc ::= {}\nd ::= [0-9]", called));
    BuildAutomata(grammar);
    const Walk behind_a =
        Walk(grammar, grammar->GetRootRuleId()).After({EdgeType::kCharRange, 'a'});
    int calls = 0;
    for (const Symbol& symbol : SymbolsOf(grammar)) {
      const bool follows = !behind_a.After(symbol).empty();
      EXPECT_TRUE(!follows || symbol.type == EdgeType::kRuleRef) << called;
      calls += follows ? 1 : 0;
    }
    EXPECT_EQ(calls, 1) << called;
  }
}

}  // namespace
}  // namespace baton
