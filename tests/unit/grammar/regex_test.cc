// Regular expressions of clients: what is read, what is refused, and what XGrammar gets.
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/grammar/grammar_spec.h"
#include "common/grammar/regex/regex_anchors.h"
#include "common/grammar/regex/regex_parser.h"
#include "common/grammar/regex/regex_text.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "common/text/utf8.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/unit/grammar/grammar_walk.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

StatusOr<RegexNode> Parse(std::string_view text) {
  return ParseRegex("the text", text, GrammarLimits());
}

std::string RefusalOf(std::string_view text) {
  return std::string(Message(Parse(text).status()));
}

std::string Repeated(std::string_view text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

TEST(Regex, LengthNestingAndRepetitionsAreBounded) {
  EXPECT_EQ(RefusalOf("a(b|c)*[(((]\\(\\([0-9]{1,40}"), "");
  EXPECT_EQ(RefusalOf("((a{20}){20}){20}"), "");
  EXPECT_THAT(RefusalOf(""), HasSubstr("is empty"));
  EXPECT_THAT(RefusalOf("a\x9c"), HasSubstr("is not valid UTF-8"));
  EXPECT_THAT(RefusalOf(std::string_view("a\0b", 3)), HasSubstr("NUL"));
  EXPECT_THAT(RefusalOf(Repeated("a", 70'000)), HasSubstr("at most 65536"));
  EXPECT_THAT(RefusalOf(Repeated("(", 41) + Repeated(")", 41)), HasSubstr("40 deep"));
  for (const char* text :
       {"a{100000}", "\\d{1,100000}", "[a-z]{99999999999999999999}", "((a{100}){100}){100}"}) {
    EXPECT_THAT(RefusalOf(text), HasSubstr("repeats")) << text;
  }
}

TEST(Regex, WhatIsNotSupportedIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"(?=a)", "looks ahead or behind"},
      {"(?<!a)b", "looks ahead or behind"},
      {"(?i)a", "flags"},
      {"(?<y\U00040000>a)", "ASCII letters"},
      {"(?<y", "ASCII letters"},
      {"a\\b", "word boundary"},
      {"(a)\\1", "back reference"},
      {"\\p{L}", "\\p"},
      {"\\x4", "escape"},
      {"\\xzz", "escape"},
      {"\\u12", "escape"},
      {"\\ud800", "escape"},
      {"\\u{110000}", "escape"},
      {"\\u{}", "escape"},
      {"\\c1", "escape"},
      {"\\q", "escape"},
      {"[\\x82\\5]", "back reference"},
      {"\\", "escape"},
      {"a{2\U00040000}", "a brace must begin a count"},
      {"a{x", "a brace must begin a count"},
      {"a{3,1}", "wrong order"},
      {"[z-a]", "wrong order"},
      {"*a", "repeats nothing"},
      {"a**", "two repetitions"},
      {"(a", "a ( without a )"},
      {"a)", "a ) without a ("},
      {"[a", "a [ without a ]"}};
  for (const auto& [text, named] : cases) {
    EXPECT_THAT(RefusalOf(text), HasSubstr(named)) << text;
  }
  EXPECT_THAT(std::string(Message(MatchedSomewhere("it", Parse("a^b").value()).status())),
              HasSubstr("has ^ or $ in a place"));
}

// What ECMA-262 says of each text, for a match anywhere in it.
TEST(Regex, APatternMatchesAnywhereUnlessItIsAnchored) {
  struct Case {
    const char* pattern;
    const char* text;
    bool matches;
  };
  const Case cases[] = {{"^https://", "https://x", true},
                        {"^https://", "xhttps://", false},
                        {"[A-F]{2}", "xABx", true},
                        {"[A-F]{2}", "xAxBx", false},
                        {"^foo|bar$", "foox", true},
                        {"^foo|bar$", "xbar", true},
                        {"^foo|bar$", "xfoobarx", false},
                        {"^(a|b$)", "ax", true},
                        {"^(a|b$)", "bx", false},
                        {"(^|,)a($|,)", "x,a", true},
                        {"(^|,)a($|,)", "xa", false},
                        {"^$", "", true},
                        {"^$", "a", false},
                        {"", "x", true},
                        {"a+$", "caa", true},
                        {"^.+$", "a\nb", false},
                        {".", "\n", false},
                        {"^[^]$", "\n", true},
                        {"\\S", "\u00a0\ufeff\u2028", false},
                        {"^\\s{3}$", "\u00a0\ufeff\u3000", true},
                        {"^\\d$", "\u0665", false},
                        {"^[\\w-]+$", "a-_9", true},
                        {"^a{2,3}?$", "aaa", true}};
  for (const auto& [pattern, text, matches] : cases) {
    const StatusOr<RegexNode> node =
        std::string_view(pattern).empty() ? RegexNode() : Parse(pattern);
    ASSERT_TRUE(node.ok()) << node.status();
    const auto somewhere = MatchedSomewhere("it", *node);
    ASSERT_TRUE(somewhere.ok()) << somewhere.status();
    EXPECT_EQ(Matches(*somewhere, text), matches) << pattern << " in " << text;
  }
}

TEST(Regex, ManyAlternativesWithAnchorsAreBounded) {
  const std::string options = "(^a|" + Repeated("b|", 400) + "c)";
  EXPECT_TRUE(MatchedSomewhere("it", Parse(options).value()).ok());
  const std::string both = options + "(d$|" + Repeated("e|", 400) + "f)";
  const auto many = MatchedSomewhere("it", Parse(both).value());
  EXPECT_THAT(std::string(Message(many.status())), HasSubstr("too many alternatives"));
}

TEST(Regex, LengthsNarrowThePartThatVaries) {
  const auto bounded = [](const char* pattern, int64_t least, int64_t most) {
    const auto node = MatchedSomewhere("it", Parse(pattern).value());
    return WithLength("it", node.value(), least, most);
  };
  const auto code = bounded("^[A-Z][a-z0-9]*-$", 4, 6);
  ASSERT_TRUE(code.ok());
  EXPECT_FALSE(Matches(*code, "Aa-"));
  EXPECT_TRUE(Matches(*code, "Aaa-"));
  EXPECT_TRUE(Matches(*code, "Aaaaa-"));
  EXPECT_FALSE(Matches(*code, "Aaaaaa-"));
  EXPECT_TRUE(bounded("^(ab)+$", 3, 9).ok());
  EXPECT_TRUE(Matches(*bounded("^a|bcd$", 3, 9), "xbcd"));
  EXPECT_TRUE(bounded("^https://", 1, 2048).ok());
  EXPECT_TRUE(bounded("^(yes|no)$", 2, 3).ok());
  EXPECT_FALSE(Matches(*bounded("^(yes|no)$", 3, 3), "no"));
  EXPECT_THAT(std::string(Message(bounded("^abc$", 4, 9).status())), HasSubstr("no text"));
  EXPECT_THAT(std::string(Message(bounded("^(ab)+$", 3, 3).status())), HasSubstr("no text"));
  EXPECT_THAT(std::string(Message(bounded("^(ab){1,3}(cd)?$", 5, 5).status())),
              HasSubstr("not supported"));
}

// Where several parts vary, each gets a share: all texts match, and have a length within the
// bounds.
TEST(Regex, LengthsAreSharedAmongThePartsThatVary) {
  const auto both = [](int64_t least, int64_t most) {
    return WithLength("it", MatchedWhole("it", Parse("^a+b+$").value()).value(), least, most);
  };
  EXPECT_TRUE(Matches(*both(3, 9), "aab"));
  EXPECT_TRUE(Matches(*both(3, 9), "aaaabbbbb"));
  EXPECT_FALSE(Matches(*both(3, 9), "ab"));
  EXPECT_FALSE(Matches(*both(3, 9), "aaaaabbbbb"));
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts[i].size() < 6; ++i) {
    for (const char c : {'a', 'b', '-'}) texts.push_back(texts[i] + c);
  }
  for (const char* pattern : {"^a+b+$",
                              "^(a+-)*b*$",
                              "^[ab]+(-[ab]+)*$",
                              "^(a|b-)+(-a?)?$",
                              "a+-",
                              "^((a?){3}b){2,}$",
                              "^(a{2,3}b?)+$"}) {
    const RegexNode node = MatchedSomewhere("it", Parse(pattern).value()).value();
    for (int64_t least = 0; least < 4; ++least) {
      for (const int64_t most : {least + 1, least + 3, RegexNode::kNoLimit}) {
        const auto narrowed = WithLength("it", node, least, most);
        if (!narrowed.ok()) continue;
        int matching = 0;
        for (const std::string& text : texts) {
          if (!Matches(*narrowed, text)) continue;
          ++matching;
          const auto length = static_cast<int64_t>(text.size());
          EXPECT_TRUE(Matches(node, text)) << pattern << " " << text;
          EXPECT_TRUE(length >= least && (most == RegexNode::kNoLimit || length <= most))
              << pattern << " " << text;
        }
        EXPECT_TRUE(matching > 0 || most == RegexNode::kNoLimit) << pattern;
      }
    }
  }
}

// What XGrammar makes of the written text, on both of its ways, is what the tree means.
class RegexTextTest : public ::testing::Test {
 protected:
  bool Accepts(const GrammarPart& part, std::string_view text) {
    const auto grammar = CompileNow(*compiler_, GrammarSpec(part));
    if (grammar == nullptr) return false;
    const auto matcher = grammar->NewMatcher(tokenizer_.spec().eos);
    for (const char c : text) {
      if (!matcher->Accept(static_cast<uint8_t>(c))) return false;
    }
    return matcher->Accept(tokenizer_.spec().eos[0]);
  }

  const Tokenizer tokenizer_ = BytesAnd({});
  const std::unique_ptr<GrammarCompiler> compiler_ = CompilerFor(tokenizer_);
};

TEST_F(RegexTextTest, EachCharacterIsItselfInEachPlace) {
  for (char32_t c = 0; c < 0x100; ++c) {
    const CodePoints one({{c, c}});
    const CodePoints three({{c, c}, {'1', '1'}, {'^', '^'}});
    std::string text;
    AppendUtf8(text, c);
    for (const CodePoints& set : {one, three}) {
      const auto node = SequenceNode({ClassNode(set), ClassNode(CodePoints({{'x', 'x'}}))});
      const GrammarPart plain = {{"type", "regex"},
                                 {"pattern", RegexText(node, RegexPlace::kPlain)}};
      EXPECT_TRUE(Accepts(plain, text + "x")) << static_cast<int>(c);
      EXPECT_FALSE(Accepts(plain, c == 'y' ? "zx" : "yx")) << static_cast<int>(c);
      const nlohmann::ordered_json schema = {{"type", "string"},
                                             {"pattern", RegexText(node, RegexPlace::kInJson)}};
      EXPECT_TRUE(Accepts(JsonSchemaOf(schema), nlohmann::json(text + "x").dump()))
          << static_cast<int>(c);
      EXPECT_FALSE(Accepts(JsonSchemaOf(schema), c == 'y' ? "\"zx\"" : "\"yx\""));
    }
  }
}

// Random expressions, whose texts are compared with the tree.
TEST_F(RegexTextTest, RandomExpressionsAllowWhatTheirTreesDo) {
  std::mt19937_64 random(3);
  const std::function<RegexNode(int)> node = [&](int depth) {
    static const CodePoints kSets[] = {CodePoints({{'a', 'a'}}),
                                       CodePoints({{'.', '.'}}),
                                       CodePoints({{'a', 'b'}}),
                                       CodePoints({{'"', '"'}, {'b', 'b'}}),
                                       CodePoints({{0xE9, 0xE9}, {'a', 'a'}})};
    const size_t kind = random() % (depth > 0 ? 6 : 2);
    if (kind < 2) return ClassNode(kSets[random() % std::size(kSets)]);
    if (kind < 4) {
      const auto least = static_cast<int64_t>(random() % 2);
      const int64_t most =
          random() % 3 == 0 ? RegexNode::kNoLimit : least + static_cast<int64_t>(random() % 4);
      return RepeatNode(node(depth - 1), least, most);
    }
    std::vector<RegexNode> parts;
    for (size_t i = random() % 4; i > 0; --i) parts.push_back(node(depth - 1));
    if (kind == 4 && !parts.empty()) return ChoiceNode(std::move(parts));
    return SequenceNode(std::move(parts));
  };
  for (int i = 0; i < 1'500; ++i) {
    const RegexNode tree = node(3);
    const GrammarPart plain = {{"type", "regex"}, {"pattern", RegexText(tree, RegexPlace::kPlain)}};
    const GrammarPart json =
        JsonSchemaOf({{"type", "string"}, {"pattern", RegexText(tree, RegexPlace::kInJson)}});
    if (!CheckGrammar(GrammarSpec(plain)).ok()) continue;  // ambiguous, or without an output
    for (int k = 0; k < 30; ++k) {
      std::string text;
      static constexpr const char* kParts[] = {"a", "b", ".", "\"", "é"};
      for (size_t length = random() % 5; length > 0; --length) text += kParts[random() % 5];
      ASSERT_EQ(Accepts(plain, text), Matches(tree, text)) << plain << " " << text;
      ASSERT_EQ(Accepts(json, nlohmann::json(text).dump()), Matches(tree, text))
          << json << " " << text;
    }
  }
}

TEST_F(RegexTextTest, StringsOfPatternsAndBoundsHoldEscapes) {
  const auto accepts = [&](const char* schema, std::string_view text) {
    const auto part = JsonSchemaPart(nlohmann::ordered_json::parse(schema));
    EXPECT_TRUE(part.ok()) << part.status();
    return Accepts(*part, text);
  };
  for (const char* bounded : {R"({"type": "string", "minLength": 2, "maxLength": 3})",
                              R"({"type": "string", "minLength": 2, "pattern": "^[^]{0,3}$"})"}) {
    EXPECT_TRUE(accepts(bounded, R"("a\n\"")")) << bounded;
    EXPECT_TRUE(accepts(bounded, R"("\\\u001f")")) << bounded;
    EXPECT_FALSE(accepts(bounded, R"("\n")")) << bounded;
    EXPECT_FALSE(accepts(bounded, R"("a\n\"b")")) << bounded;
    EXPECT_FALSE(accepts(bounded, "\"a\nb\"")) << bounded;
    EXPECT_FALSE(accepts(bounded, R"("ab\")")) << bounded;
  }
  const char* quoted = R"({"type": "string", "pattern": "^[a-z\"]+\\\\[0-9]{2}$"})";
  EXPECT_TRUE(accepts(quoted, R"("a\"b\\12")"));
  EXPECT_FALSE(accepts(quoted, R"("a"b\\12")"));
  EXPECT_FALSE(accepts(quoted, R"("a\"b\12")"));
  const char* somewhere = R"({"type": "string", "pattern": "[A-F]{2}"})";
  EXPECT_TRUE(accepts(somewhere, R"("xABx")"));
  EXPECT_TRUE(accepts(somewhere, R"("\"\nAB\\")"));
  EXPECT_FALSE(accepts(somewhere, R"("xAxBx")"));
  EXPECT_TRUE(accepts(R"({"type": "string", "pattern": "^$"})", "\"\""));
  EXPECT_FALSE(accepts(R"({"type": "string", "pattern": "^$"})", "\"a\""));
}

}  // namespace
}  // namespace baton
