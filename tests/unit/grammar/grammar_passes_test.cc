// What the passes over a parsed grammar leave of its rules, and the automata that they make of them.
#include <fsm.h>
#include <grammar_functor.h>
#include <grammar_impl.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/grammar/xgrammar/grammar_automata.h"
#include "common/grammar/xgrammar/grammar_passes.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;
using xgrammar::Grammar;

int RulesOf(Grammar parsed) { return (*Optimised(std::move(parsed)))->NumRules(); }

int RulesOf(const char* ebnf) { return RulesOf(Grammar::FromEBNF(ebnf)); }

TEST(GrammarPasses, EqualRulesBecomeOne) {
  EXPECT_EQ(RulesOf("root ::= \"<\" a \",\" b \">\"\n"
                    "a ::= \"a\" c\nb ::= \"a\" d\nc ::= \"\" | [0-9]\nd ::= \"\" | [0-9]"),
            3);  // root, b, d
  EXPECT_EQ(RulesOf("root ::= \"<\" a{2,3} \",\" b{2,3} \">\"\n"
                    "a ::= \"a\" c\nb ::= \"a\" d\nc ::= \"\" | [0-9]\nd ::= \"\" | [0-9]"),
            4);  // and their repetition
}

TEST(GrammarPasses, OtherRulesStay) {
  EXPECT_EQ(RulesOf("root ::= \"<\" a \",\" b \">\"\n"
                    "a ::= \"a\" c\nb ::= \"a\" d\nc ::= \"\" | [0-9]\nd ::= \"\" | [0-8]"),
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

// The labels of all edges of a rule's automaton, and its numbers of states and of ends.
struct Shape {
  std::vector<std::pair<int, int>> labels;
  int states = 0;
  size_t ends = 0;
  bool operator==(const Shape&) const = default;
};

Shape ShapeOf(const Grammar& grammar, int rule) {
  const auto& of_rule = *grammar->per_rule_fsms[static_cast<size_t>(rule)];
  Shape shape = {{}, of_rule.GetNodeNum(), of_rule.GetFsm().GetEnds().size()};
  int first = 0;
  for (int i = 0; i < rule; ++i) {
    first += grammar->per_rule_fsms[static_cast<size_t>(i)]->GetNodeNum();
  }
  for (int state = first; state < first + shape.states; ++state) {
    for (const auto& edge : grammar->complete_fsm.GetEdges(state)) {
      shape.labels.emplace_back(edge.min, edge.max);
    }
  }
  std::ranges::sort(shape.labels);
  return shape;
}

TEST(GrammarPasses, AutomataAreThoseOfXGrammar) {
  for (const char* ebnf :
       {"root ::= \"abc\"",
        "root ::= \"\"",
        "root ::= \"\" | \"abc\" root | \"abd\" | \"xd\"",
        "root ::= \"1\" a \"2\" | \"1\" a \"3\" | a\na ::= \"\" | [a-cx-z] [0-9] \"q\"",
        "root ::= [é] a | \"éa\" | [à-ÿ] | [^a] | [^\\x00-\\U0010FFFF]\na ::= [a-zé]",
        "root ::= [a-z]* \"x\" | [0-9]* [a-z]*",
        "root ::= \"a\" b{2,5} \"c\" | b\nb ::= \"b\" | [b] [b] | \"\"",
        "root ::= [ab] | \"a\" | \"b\" | [ab] \"c\" | \"a\" \"d\""}) {
    Grammar ours = Grammar::FromEBNF(ebnf);
    Grammar theirs = Grammar::FromEBNF(ebnf);
    BuildAutomata(ours);
    xgrammar::GrammarFSMBuilder::Apply(&theirs);
    ASSERT_EQ(ours->per_rule_fsms.size(), theirs->per_rule_fsms.size());
    for (int rule = 0; rule < ours->NumRules(); ++rule) {
      EXPECT_EQ(ShapeOf(ours, rule), ShapeOf(theirs, rule)) << ebnf << ": rule " << rule;
    }
  }
}

}  // namespace
}  // namespace baton
