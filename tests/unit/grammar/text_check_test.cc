#include "common/grammar/text_check.h"

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/grammar/grammar_spec.h"
#include "common/grammar/xgrammar/grammar_compiler.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

std::string RefusalOf(const std::string& text) {
  return std::string(Message(CheckEbnf("the text", text, GrammarLimits())));
}

TEST(TextCheck, BoundsLengthNestingAndRepetitions) {
  EXPECT_EQ(RefusalOf("root ::= \"((((\" [(((] \"a\\\"(\"{3}"), "");
  EXPECT_THAT(RefusalOf(""), HasSubstr("is empty"));
  EXPECT_THAT(RefusalOf("a\x9c"), HasSubstr("is not valid UTF-8"));
  EXPECT_THAT(RefusalOf(std::string("a\0b", 3)), HasSubstr("NUL"));
  EXPECT_THAT(RefusalOf("root ::= \"" + std::string(70'000, 'a') + "\""),
              HasSubstr("at most 65536"));
  EXPECT_THAT(RefusalOf("root ::= " + std::string(41, '(')), HasSubstr("40 deep"));
  EXPECT_THAT(RefusalOf("root ::= (\"a\"{300} \"b\"){300}"), HasSubstr("repeats"));
}

TEST(TextCheck, RefusesChoicesThatAreNotUtf8) {
  const std::vector<std::string> choices = {"yes", "n\x9c"};
  EXPECT_THAT(std::string(Message(ChoicePart(choices).status())),
              HasSubstr("a choice is not valid UTF-8"));
}

TEST(TextCheck, WhiteSpaceAndCommentsDoNotHideCountsInEbnf) {
  EXPECT_EQ(RefusalOf("root ::= (\"a\" {3} # twice {99999}\n) {3}"), "");
  for (const char* text : {"root ::= (\"a\" {300} \"b\") {300}",
                           "root ::= (x # c\n {300}) {\n300}",
                           "root ::= ([a] {300}) { # c\n300}",
                           "root ::= (\"a\"{300}) # \"\n{300} # \"",
                           "root ::= (\"a\"{300}) # [\r{300} # ]"}) {
    EXPECT_THAT(RefusalOf(text), HasSubstr("repeats")) << text;
  }
}

TEST(TextCheck, RefusesWhatXGrammarCallsAsFunctions) {
  EXPECT_EQ(RefusalOf("root ::= Token\nToken ::= \"Regex(\" [Token(] Tokens (x)"), "");
  EXPECT_THAT(RefusalOf("root ::= Token(3)"), HasSubstr("calls Token"));
  EXPECT_THAT(RefusalOf("root ::= Regex # c\n (\"(a{999}){999}\")"), HasSubstr("calls Regex"));
}

TEST(TextCheck, RefusesEscapesThatWouldBeMisread) {
  EXPECT_EQ(RefusalOf("root ::= \"\\x41\\u00e9\\U0010FFFF\" [\\x01\\x41] [\\^b] \"\\x41\u0431\""),
            "");
  for (const char* text : {"\\x4",
                           "\\x",
                           "\\xzz",
                           "\\x41414141414141",
                           "\\u12",
                           "\\ud800",
                           "\\U00110000",
                           "\\UFFFFFFFFF"}) {
    EXPECT_THAT(RefusalOf("root ::= \"" + std::string(text) + "\""), HasSubstr("escape")) << text;
  }
}

// Whatever the check skips, XGrammar must not read as a literal or a count.
TEST(TextCheck, NothingHidesWhatFollowsInEbnf) {
  EXPECT_EQ(RefusalOf("root ::= \"a\"{ 3 ,\n\t5 } b [\"] c[x-z] [capture=\"]"), "");
  for (const char* text : {"root ::= a({){9\")\\UFFFFFFFF\"",
                           "root ::= \"a\"{ # }\n300}",
                           "root ::= \"a\"{3,\"}\"}",
                           "root ::= \"a\"{b}"}) {
    EXPECT_THAT(RefusalOf(text), HasSubstr("\"{\" stands for a brace")) << text;
  }
  for (const char* text :
       {"root[capture=\"]\"] ::= \"#\\UFFFFFFFF\"", "root[capture=\"x\"] ::= \"a\"*"}) {
    EXPECT_THAT(RefusalOf(text), HasSubstr("attributes of rules are not supported")) << text;
  }
}

// The check of the grammar, which knows the rules, refuses the rest.
TEST(TextCheck, RulesWithAttributesAreRefused) {
  for (const char* text : {"root[max_tokens=3] ::= \"a\"*",
                           "root ::= a\na[lazy] ::= [a-z]+",
                           "root[max_chars=3] ::= \"a\"*",
                           "root[temperature=0.5] ::= \"a\"*"}) {
    const auto part = EbnfPart(text);
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_THAT(std::string(Message(CheckGrammar(GrammarSpec(*part)))), HasSubstr("attributes"))
        << text;
  }
}

}  // namespace
}  // namespace baton
