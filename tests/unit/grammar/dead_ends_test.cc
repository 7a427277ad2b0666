// Grammars that allow no output, or have places from which no output can end.
#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/grammar/call_grammar.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/schema_check.h"
#include "common/grammar/xgrammar/earley_matcher.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "common/grammar/xgrammar/grammar_passes.h"
#include "common/grammar/xgrammar/utf8_tokens.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/unit/grammar/grammar_walk.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

class DeadEnds : public ::testing::Test {
 protected:
  // That the check and the compiler refuse the grammar because it allows no output.
  void ExpectNoOutput(const StatusOr<GrammarPart>& part) {
    ASSERT_TRUE(part.ok()) << part.status();
    const std::string spec = GrammarSpec(*part);
    for (const Status& status : {CheckGrammar(spec), TryCompile(*compiler_, spec).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << spec;
      EXPECT_THAT(std::string(Message(status)), HasSubstr("allows no output")) << spec;
    }
  }
  std::shared_ptr<const Grammar> Compile(const StatusOr<GrammarPart>& part) {
    EXPECT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(CheckGrammar(GrammarSpec(*part)), OkStatus()) << GrammarSpec(*part);
    return CompileNow(*compiler_, GrammarSpec(*part));
  }
  // The characters that may follow `text`.
  std::string After(const Grammar& grammar, std::string_view text) {
    const std::vector<TokenId> tokens(text.begin(), text.end());
    const std::vector<uint32_t> mask =
        MaskAfter(grammar, tokens, tokenizer_.spec().eos, vocabulary_);
    std::string allowed;
    for (TokenId token = 0; token < 128; ++token) {
      if (Allows(mask, token)) allowed += static_cast<char>(token);
    }
    return allowed;
  }
  bool Accepts(const Grammar& grammar, std::string_view text) {
    const auto matcher = grammar.NewMatcher(tokenizer_.spec().eos);
    return std::ranges::all_of(text, [&](char c) { return matcher->Accept(c); }) &&
           matcher->Accept(tokenizer_.spec().eos[0]);
  }

  const Tokenizer tokenizer_ = BytesAnd({"ab", "ba", "aab", "{\"", "\": "});
  const int32_t vocabulary_ = static_cast<int32_t>(tokenizer_.vocab_size());
  const std::unique_ptr<GrammarCompiler> compiler_ = CompilerFor(tokenizer_);
};

TEST_F(DeadEnds, GrammarsWithoutAnOutputAreRefused) {
  for (const char* text : {"root ::= root",
                           "root ::= root \"a\"",
                           "root ::= a\na ::= b\nb ::= a",
                           "root ::= \"ab\" x\nx ::= x",
                           "root ::= [^\\x00-\\U0010FFFF]",
                           "root ::= (root | x){2,5}\nx ::= \"a\" root",
                           "root ::= \"a\"* x\nx ::= \"b\" x | \"c\" x"}) {
    ExpectNoOutput(EbnfPart(text));
  }
  ExpectNoOutput(RegexPart("[^\\x00-\\U0010FFFF]"));
  ExpectNoOutput(RegexPart("a(b[^\\x00-\\U0010FFFF])+"));
}

// The values of these schemas contain themselves without end.
TEST_F(DeadEnds, SchemasThatRequireThemselvesAreRefused) {
  for (
      const char* schema :
      {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
       R"({"type": "array", "items": {"$ref": "#"}, "minItems": 1})",
       R"({"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1})",
       R"({"type": "object", "additionalProperties": {"$ref": "#"}, "minProperties": 1})",
       R"({"$ref": "#/$defs/a", "$defs": {
             "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}, "required": ["b"]},
             "b": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 2}}})",
       R"({"anyOf": [{"$ref": "#/$defs/a"}, {"type": "array", "items": {"$ref": "#"}, "minItems": 1}],
             "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1}}})"}) {
    ExpectNoOutput(JsonSchemaPart(Json::parse(schema)));
  }
}

// A tool that no call can satisfy.
TEST_F(DeadEnds, CallsWithoutAnEndAreRefusedInFreeTextToo) {
  const Json schema =
      Json::parse(R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})");
  const Json checked = CheckedSchema(schema, GrammarLimits()).value();
  const auto part = TextWithCallsPart({ToolCallFormat::kHermes}, {{"f", checked}}, false);
  ASSERT_TRUE(part.ok());
  EXPECT_THAT(std::string(Message(CheckGrammar(GrammarSpec(*part)))),
              HasSubstr("allows no output"));
}

TEST_F(DeadEnds, DeadBranchesAreNeverEntered) {
  const std::pair<const char*, const char*> grammars[] = {
      {"root ::= \"ab\" x | \"cd\"\nx ::= x", "c"},
      {"root ::= \"a\" x? \"b\" | \"c\" x \"d\"\nx ::= \"x\" x", "a"},
      {"root ::= \"a\" [^\\x00-\\U0010FFFF] | \"c\"", "c"},
      {"root ::= x{0,3} \"b\"\nx ::= \"a\" x", "b"},
      {"root ::= x* \"b\"\nx ::= \"a\" x", "b"},
      {"root ::= y{0,3} \"b\"\ny ::= \"a\" x | \"c\" \nx ::= \"x\" x", "bc"}};
  for (const auto& [text, first] : grammars) {
    const auto grammar = Compile(EbnfPart(text));
    EXPECT_EQ(After(*grammar, ""), first) << text;
  }
  const auto grammar = Compile(EbnfPart(grammars[1].first));
  EXPECT_EQ(After(*grammar, "a"), "b");
  const auto pattern = Compile(RegexPart("a(x[^\\x00-\\U0010FFFF]|b)"));
  EXPECT_EQ(After(*pattern, "a"), "b");
}

// A property that could only hold endless values is never begun.
TEST_F(DeadEnds, EndlessOptionalPropertiesAreNeverWritten) {
  const auto grammar = Compile(JsonSchemaPart(Json::parse(R"({"$ref": "#/$defs/o", "$defs": {
    "o": {"type": "object", "properties": {"p": {"type": "null"}, "a": {"$ref": "#/$defs/e"}}},
    "e": {"type": "object", "properties": {"e": {"$ref": "#/$defs/e"}}, "required": ["e"]}}})")));
  EXPECT_TRUE(Accepts(*grammar, "{}"));
  EXPECT_TRUE(Accepts(*grammar, "{\"p\":null}"));
  EXPECT_EQ(After(*grammar, "{\""), "p");
  EXPECT_THAT(After(*grammar, "{\"p\":null"), testing::Not(HasSubstr(",")));
}

// A matcher of characters.
std::unique_ptr<GrammarMatcher> MatcherOf(const std::string& ebnf, VisitLimits limits) {
  std::vector<std::string> texts(128);
  for (size_t i = 1; i < texts.size(); ++i) texts[i] = std::string(1, static_cast<char>(i));
  const auto trie = std::make_shared<const TokenTrie>(TokenTrie::Make(texts));
  const auto grammar = Optimised(xgrammar::Grammar::FromEBNF(ebnf)).value();
  return NewEarleyMatcher(
      {grammar,
       trie,
       std::make_shared<StateMasks>(grammar, trie, std::make_shared<const Utf8Tokens>(texts)),
       std::make_shared<RecentCalls>()},
      {},
      limits);
}

// How often `matcher` takes an 'a', at most `max` times.
int TakenBy(GrammarMatcher& matcher, int max) {
  int taken = 0;
  while (taken < max && matcher.Accept('a')) ++taken;
  return taken;
}

// The parser's bound is an error of its own, and nothing may follow then.
TEST(EarleyMatcher, AnOutputBeyondTheParserNamesItsBound) {
  const auto matcher = MatcherOf("root ::= root root | \"a\"", {.call = 300});
  EXPECT_GT(TakenBy(*matcher, 1000), 5);
  EXPECT_EQ(matcher->failure().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(matcher->failure())), HasSubstr("300 states of the parser"));
  std::vector<uint32_t> mask(4);
  matcher->FillMask(mask);
  EXPECT_EQ(mask, std::vector<uint32_t>(4));
}

// An output whose calls are all a little expensive ends, too: its work grows with the cube of its
// length.
TEST(EarleyMatcher, AnOutputBeyondTheParserOnAverageNamesThatBound) {
  const VisitLimits limits = {.call = 100'000, .mean = 1'000};
  const auto ambiguous = MatcherOf("root ::= root root | \"a\"", limits);
  EXPECT_LT(TakenBy(*ambiguous, 1000), 200);
  EXPECT_EQ(ambiguous->failure().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(ambiguous->failure())), HasSubstr("on average"));
  for (const char* plain : {"root ::= \"a\" root | \"b\"",
                            "root ::= root \"a\" | \"a\"",
                            "root ::= \"a\" root \"b\" | \"c\""}) {
    EXPECT_EQ(TakenBy(*MatcherOf(plain, limits), 5000), 5000) << plain;
  }
}

// What is taken back does not count: with guesses, an output goes as far as without them.
TEST(EarleyMatcher, GuessesBringAnOutputNoNearerToItsBound) {
  const auto ambiguous = MatcherOf("root ::= root root | \"a\"", {.call = 100'000, .mean = 1'000});
  ASSERT_EQ(TakenBy(*ambiguous, 70), 70);
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(ambiguous->Accept('a')) << i << ": " << ambiguous->failure();
    ambiguous->GoBack(1);
  }
  for (int i = 0; i < 300; ++i) (void)ambiguous->CountAllowed(std::vector<TokenId>{'a', 'a'});
  EXPECT_TRUE(ambiguous->Accept('a'));
  EXPECT_EQ(ambiguous->failure(), OkStatus());
}

// The engine's thread asks for the guesses, so the answer must not take long.
TEST(EarleyMatcher, FewGuessesOfAnAmbiguousGrammarAreAllowed) {
  const auto ambiguous = MatcherOf("root ::= root root | \"a\"", {.guesses = 300});
  const std::vector<TokenId> guesses(100, 'a');
  const size_t allowed = ambiguous->CountAllowed(guesses);
  EXPECT_GT(allowed, 3u);
  EXPECT_LT(allowed, 30u);
  EXPECT_EQ(ambiguous->failure(), OkStatus());
  EXPECT_EQ(TakenBy(*ambiguous, 40), 40);
  EXPECT_LE(ambiguous->CountAllowed(guesses), 1u);
  const auto plain = MatcherOf("root ::= \"a\" root | \"b\"", {.guesses = 300});
  EXPECT_EQ(plain->CountAllowed(guesses), 100u);
}

// A random grammar whose rules are choices of sequences of few elements.
class RandomGrammar final {
 public:
  explicit RandomGrammar(std::mt19937_64& random) : rules_(1 + random() % 5) {
    for (auto& choices : rules_) {
      choices.resize(1 + random() % 3);
      for (auto& sequence : choices) {
        sequence.resize(random() % 4);
        for (Element& element : sequence) {
          element.rule = static_cast<int>(random() % (rules_.size() + 4)) - 4;
          if (random() % 5 == 0) element.most = 1 + static_cast<int>(random() % 3);
          if (random() % 5 == 0) element.least = static_cast<int>(random() % 3);
          element.most = std::max(element.least, element.most);
        }
      }
    }
  }

  std::string Text() const {
    std::string text;
    for (size_t i = 0; i < rules_.size(); ++i) {
      text += (i == 0 ? "root" : fmt::format("r{}", i)) + " ::= ";
      for (size_t choice = 0; choice < rules_[i].size(); ++choice) {
        text += choice == 0 ? "\"\"" : " | \"\"";
        for (const Element& one : rules_[i][choice]) text += " " + TextOf(one);
      }
      text += "\n";
    }
    return text;
  }

  // A random output whose derivation is at most `depth` rules deep; nothing when there is none.
  std::optional<std::string> Output(int rule, int depth, std::mt19937_64& random) const {
    if (depth == 0) return std::nullopt;
    const auto& choices = rules_[static_cast<size_t>(rule)];
    const size_t first = random() % choices.size();
    for (size_t i = 0; i < choices.size(); ++i) {
      auto text = Output(choices[(first + i) % choices.size()], depth, random);
      if (text.has_value()) return text;
    }
    return std::nullopt;
  }

  int depth() const { return static_cast<int>(rules_.size()) + 1; }

 private:
  struct Element {
    int rule = 0;  // or a letter: -1 and -2; a class without a character: -3; a range: -4
    int least = 1;
    int most = 1;
  };

  static std::string TextOf(const Element& element) {
    static constexpr const char* kSymbols[] = {"\"a\"", "\"b\"", "[^\\x00-\\U0010FFFF]", "[ab]"};
    std::string name = element.rule < 0    ? kSymbols[-1 - element.rule]
                       : element.rule == 0 ? "root"
                                           : fmt::format("r{}", element.rule);
    if (element.least == 1 && element.most == 1) return name;
    return fmt::format("{}{{{},{}}}", name, element.least, std::max(element.most, 1));
  }

  std::optional<std::string> Output(const std::vector<Element>& sequence,
                                    int depth,
                                    std::mt19937_64& random) const {
    std::string text;
    for (const Element& element : sequence) {
      for (int i = 0; i < element.least; ++i) {
        std::optional<std::string> part;
        if (element.rule == -1) part = "a";
        if (element.rule == -2) part = "b";
        if (element.rule == -4) part = random() % 2 == 0 ? "a" : "b";
        if (element.rule >= 0) part = Output(element.rule, depth - 1, random);
        if (!part.has_value()) return std::nullopt;
        text += *part;
      }
    }
    return text;
  }

  std::vector<std::vector<std::vector<Element>>> rules_;
};

// An independent search decides whether a grammar allows an output. If so, its own outputs are
// accepted, and no random walk under masks comes to an end where nothing may follow.
TEST_F(DeadEnds, RandomGrammarsAllowExactlyWhatCanEnd) {
  std::mt19937_64 random(23);
  int refused = 0;
  int walks = 0;
  for (int round = 0; round < 600; ++round) {
    const RandomGrammar one(random);
    const StatusOr<GrammarPart> part = EbnfPart(one.Text());
    SCOPED_TRACE(one.Text());
    const auto output = one.Output(0, one.depth(), random);
    if (!output.has_value()) {
      ASSERT_NO_FATAL_FAILURE(ExpectNoOutput(part));
      ++refused;
      continue;
    }
    const auto grammar = Compile(part);
    ASSERT_NE(grammar, nullptr);
    for (int i = 0; i < 4; ++i) {
      const auto other = one.Output(0, one.depth() + i, random);
      if (other.has_value() && other->size() < 200) {
        ASSERT_TRUE(Accepts(*grammar, *other)) << *other;
      }
      if (RandomOutput(*grammar, tokenizer_, random, 60).has_value()) ++walks;
      ASSERT_FALSE(HasFailure());
    }
  }
  EXPECT_GT(refused, 60);
  EXPECT_GT(walks, 600);
}

}  // namespace
}  // namespace baton
