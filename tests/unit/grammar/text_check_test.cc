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

constexpr auto kRegex = GrammarText::kRegex;
constexpr auto kEbnf = GrammarText::kEbnf;

std::string Repeated(const std::string& text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

std::string RefusalOf(GrammarText kind, const std::string& text) {
  return std::string(Message(CheckGrammarText(kind, "the text", text, GrammarLimits())));
}

TEST(TextCheck, BoundsLengthNestingAndRepetitions) {
  EXPECT_EQ(RefusalOf(kRegex, "a(b|c)*[(((]\\(\\([0-9]{1,40}"), "");
  EXPECT_EQ(RefusalOf(kRegex, "((a{20}){20}){20}"), "");
  EXPECT_THAT(RefusalOf(kRegex, ""), HasSubstr("is empty"));
  EXPECT_THAT(RefusalOf(kRegex, "a\x9c"), HasSubstr("is not valid UTF-8"));
  EXPECT_THAT(RefusalOf(kRegex, Repeated("a", 70'000)), HasSubstr("at most 65536"));
  EXPECT_THAT(RefusalOf(kRegex, Repeated("(", 41) + Repeated(")", 41)), HasSubstr("40 deep"));
  EXPECT_THAT(RefusalOf(kRegex, "a{100000}"), HasSubstr("repeats"));
  EXPECT_THAT(RefusalOf(kRegex, "\\d{1,100000}"), HasSubstr("repeats"));
  EXPECT_THAT(RefusalOf(kRegex, "[a-z]{99999999999999999999}"), HasSubstr("repeats"));
  EXPECT_THAT(RefusalOf(kRegex, "((a{100}){100}){100}"), HasSubstr("repeats"));
  EXPECT_EQ(RefusalOf(kEbnf, "root ::= \"((((\" [(((] \"a\\\"(\"{3}"), "");
  EXPECT_THAT(RefusalOf(kEbnf, "root ::= (\"a\"{300} \"b\"){300}"), HasSubstr("repeats"));
}

TEST(TextCheck, RefusesChoicesThatAreNotUtf8) {
  const std::vector<std::string> choices = {"yes", "n\x9c"};
  EXPECT_THAT(std::string(Message(ChoicePart(choices).status())),
              HasSubstr("a choice is not valid UTF-8"));
}

TEST(TextCheck, WhiteSpaceAndCommentsDoNotHideCountsInEbnf) {
  EXPECT_EQ(RefusalOf(kEbnf, "root ::= (\"a\" {3} # twice {99999}\n) {3}"), "");
  for (const char* text : {"root ::= (\"a\" {300} \"b\") {300}",
                           "root ::= (x # c\n {300}) {\n300}",
                           "root ::= ([a] {300}) { # c\n300}",
                           "root ::= (\"a\"{300}) # \"\n{300} # \"",
                           "root ::= (\"a\"{300}) # [\r{300} # ]"}) {
    EXPECT_THAT(RefusalOf(kEbnf, text), HasSubstr("repeats")) << text;
  }
}

TEST(TextCheck, RefusesWhatXGrammarCallsAsFunctions) {
  EXPECT_EQ(RefusalOf(kEbnf, "root ::= Token\nToken ::= \"Regex(\" [Token(] Tokens (x)"), "");
  EXPECT_THAT(RefusalOf(kEbnf, "root ::= Token(3)"), HasSubstr("calls Token"));
  EXPECT_THAT(RefusalOf(kEbnf, "root ::= Regex # c\n (\"(a{999}){999}\")"),
              HasSubstr("calls Regex"));
}

TEST(TextCheck, RefusesEscapesThatWouldBeMisread) {
  for (const char* text :
       {"\\x41[\\x00-\\x1f]\\u00e9\\n\\.\\d", "[\\x01\\x02g\\s]", "\\U0010FFFF", "[\\x41g]"}) {
    EXPECT_EQ(RefusalOf(kRegex, text), "") << text;
  }
  EXPECT_EQ(RefusalOf(kRegex, "\\u{1F600}[\\ca-\\cg]"), "");
  EXPECT_EQ(RefusalOf(kEbnf, "root ::= \"\\x41\\u00e9\" [\\x01\\x41]"), "");
  for (const char* text : {"\\x4",
                           "\\x",
                           "\\xzz",
                           "\\x41414141414141",
                           "[\\x414]",
                           "\\u12",
                           "\\ud800",
                           "\\U00110000",
                           "\\UFFFFFFFFF"}) {
    EXPECT_THAT(RefusalOf(kRegex, text), HasSubstr("escape")) << text;
    EXPECT_THAT(RefusalOf(kEbnf, "root ::= \"" + std::string(text) + "\""), HasSubstr("escape"));
  }
  EXPECT_THAT(RefusalOf(kRegex, "\\u{110000}"), HasSubstr("escape"));
  EXPECT_THAT(RefusalOf(kRegex, "\\u{}"), HasSubstr("escape"));
  EXPECT_THAT(RefusalOf(kRegex, "\\u{1234567}"), HasSubstr("escape"));
  for (const char* text :
       {"[\\x01\\cbbbbbbbbbbbb]", "[^\\ca\\x62]", "[\\u0001\\d]", "[\\x7f\\w]", "[\\x011]"}) {
    EXPECT_NE(RefusalOf(kRegex, text), "") << text;
  }
  EXPECT_THAT(RefusalOf(kRegex, "[\\cbb]"), HasSubstr("change their order"));
  EXPECT_THAT(RefusalOf(kRegex, "a[\\x5ez]"), HasSubstr("begins with '\\x5ez]'"));
  EXPECT_THAT(RefusalOf(kRegex, "[\\^]"), HasSubstr("change its order"));
  EXPECT_EQ(RefusalOf(kRegex, "[b\\^][^\\^]\\^"), "");
  EXPECT_EQ(RefusalOf(kEbnf, "root ::= [\\^b]"), "");
}

// XGrammar writes such a character as \x and two digits, and reads code points by their lowest
// byte: U+0431 as the digit 1, U+015B as a bracket.
TEST(TextCheck, RefusesCharactersThatAreTakenForOthersAfterABackslash) {
  for (const char* text : {"b^[\\\001bbbbbbbbbbb-e]",
                           "\\\x7f",
                           "\\\n",
                           "[\\\u00e9a]",
                           "\\\u015b",
                           "\\x41\u0431",
                           "[\\x41\u0431\u0431\u0431\u0431\u0431\u0431\u0431]",
                           "\\c\U00040000",
                           "\\c1",
                           "[\\c]]",
                           "\\q",
                           "[\\x82\\55555555]"}) {
    EXPECT_THAT(RefusalOf(kRegex, text), HasSubstr("escape")) << text;
  }
  EXPECT_EQ(RefusalOf(kRegex, "\\x41\u00e9[\\/\\-\u0431\\]]\u0431\\cZ\\'"), "");
  EXPECT_EQ(RefusalOf(kEbnf, "root ::= \"\\x41\u0431\""), "");
}

TEST(TextCheck, RefusesNamesAndCountsBeyondAscii) {
  EXPECT_EQ(RefusalOf(kRegex, "(?<year>[0-9]{4})(?:\u0431{2,}){2,3}\\{\u0431[{\u0431]"), "");
  EXPECT_THAT(RefusalOf(kRegex, "(?<y\U00040000>a)"), HasSubstr("only ASCII letters"));
  EXPECT_THAT(RefusalOf(kRegex, "(?<\U00040000"), HasSubstr("only ASCII letters"));
  EXPECT_THAT(RefusalOf(kRegex, "a{2\U00040000}"), HasSubstr("a brace must begin a count"));
  EXPECT_THAT(RefusalOf(kRegex, "a{\U00040000"), HasSubstr("a brace must begin a count"));
}

// Whatever the check skips, XGrammar must not read as a literal or a count.
TEST(TextCheck, NothingHidesWhatFollowsInEbnf) {
  EXPECT_EQ(RefusalOf(kEbnf, "root ::= \"a\"{ 3 ,\n\t5 } b [\"] c[x-z] [capture=\"]"), "");
  for (const char* text : {"root ::= a({){9\")\\UFFFFFFFF\"",
                           "root ::= \"a\"{ # }\n300}",
                           "root ::= \"a\"{3,\"}\"}",
                           "root ::= \"a\"{b}"}) {
    EXPECT_THAT(RefusalOf(kEbnf, text), HasSubstr("\"{\" stands for a brace")) << text;
  }
  for (const char* text :
       {"root[capture=\"]\"] ::= \"#\\UFFFFFFFF\"", "root[capture=\"x\"] ::= \"a\"*"}) {
    EXPECT_THAT(RefusalOf(kEbnf, text), HasSubstr("attributes of rules are not supported")) << text;
  }
}

TEST(TextCheck, PatternsOfSchemasAreChecked) {
  const auto part = JsonSchemaPart({{"type", "string"}, {"pattern", "[^\\cbb]"}});
  EXPECT_THAT(std::string(Message(part.status())), HasSubstr("change their order"));
}

TEST(TextCheck, RefusesNul) {
  EXPECT_THAT(RefusalOf(kRegex, std::string("a\0b", 3)), HasSubstr("NUL"));
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
