// Matchers that take guesses and go back.
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/grammar/grammar_spec.h"
#include "common/grammar/schema_check.h"
#include "kernels/token_mask.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/unit/grammar/grammar_walk.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;
using Tokens = std::vector<TokenId>;

class GoBackTest : public ::testing::Test {
 protected:
  GoBackTest()
      : tokenizer_(
            BytesAnd({"{\"", "\":", "\", \"", "true", "12", "ab", "abc", "\"}", "é", "\\n"})),
        compiler_(CompilerFor(tokenizer_)) {}

  int32_t vocabulary() const { return static_cast<int32_t>(tokenizer_.vocab_size()); }
  std::span<const TokenId> stops() const { return tokenizer_.spec().eos; }

  std::vector<uint32_t> Mask(GrammarMatcher& matcher) const {
    std::vector<uint32_t> mask(MaskWords(vocabulary()));
    matcher.FillMask(mask);
    return mask;
  }
  TokenId RandomOf(const std::vector<uint32_t>& mask) {
    Tokens allowed;
    for (TokenId token = 0; token < vocabulary(); ++token) {
      if (Allows(mask, token)) allowed.push_back(token);
    }
    return allowed[random_() % allowed.size()];
  }

  const Tokenizer tokenizer_;
  const std::unique_ptr<GrammarCompiler> compiler_;
  std::mt19937_64 random_{23};
};

// At each place of random outputs the matcher takes a few allowed tokens and goes back over some of
// them: its masks are those of a matcher that has seen nothing but the output.
TEST_F(GoBackTest, AMatcherThatWentBackIsAsIfItHadNotGoneOn) {
  std::ifstream file(std::string(BATON_TEST_DATA) + "/grammar/schemas.json");
  int64_t taken_back = 0;
  int64_t ends_taken_back = 0;
  for (const Json& schema : Json::parse(file)) {
    const auto grammar = CompileNow(*compiler_, GrammarSpec(JsonSchemaPart(schema).value()));
    const auto matcher = grammar->NewMatcher(stops());
    Tokens output;
    for (int step = 0; step < 25; ++step) {
      Tokens guesses;
      for (uint64_t count = random_() % 6; count > 0; --count) {
        const std::vector<uint32_t> mask = Mask(*matcher);
        guesses.push_back(RandomOf(mask));
        ASSERT_TRUE(matcher->Accept(guesses.back()));
        if (std::ranges::count(stops(), guesses.back()) > 0) break;
      }
      const size_t back = random_() % (guesses.size() + 1);
      const bool ends = !guesses.empty() && std::ranges::count(stops(), guesses.back()) > 0;
      if (ends && back == 0) break;
      ends_taken_back += ends;
      taken_back += static_cast<int64_t>(back);
      matcher->GoBack(back);
      output.insert(output.end(), guesses.begin(), guesses.end() - static_cast<int64_t>(back));
      ASSERT_EQ(Mask(*matcher), MaskAfter(*grammar, output, stops(), vocabulary()))
          << schema.dump() << " after " << output.size() << " tokens";
    }
  }
  EXPECT_GT(taken_back, 500);
  EXPECT_GT(ends_taken_back, 5);
}

TEST_F(GoBackTest, CountsTheGuessesThatItAllows) {
  const auto grammar = CompileNow(*compiler_, GrammarSpec(JsonObjectPart()));
  const auto matcher = grammar->NewMatcher(stops());
  const auto count = [&](std::string_view text, Tokens more = {}) {
    Tokens tokens;
    for (const char c : text) tokens.push_back(static_cast<uint8_t>(c));
    tokens.insert(tokens.end(), more.begin(), more.end());
    return matcher->CountAllowed(tokens);
  };
  const std::vector<uint32_t> before = Mask(*matcher);
  EXPECT_EQ(count(""), 0u);
  EXPECT_EQ(count("x"), 0u);
  EXPECT_EQ(count("{\"a\": 12}"), 9u);
  EXPECT_EQ(count("{\"a\": 12}x"), 9u);
  EXPECT_EQ(count("{\"a\": 012}"), 7u);
  EXPECT_EQ(count("{}", {stops()[0]}), 2u) << "an end token is not a guess";
  EXPECT_EQ(count("{\"\xc3\x28"), 3u) << "no UTF-8";
  EXPECT_EQ(count("{", {-1}), 1u);
  EXPECT_EQ(count("{", {vocabulary()}), 1u);
  EXPECT_EQ(Mask(*matcher), before);
  EXPECT_EQ(matcher->failure(), OkStatus());
  ASSERT_TRUE(matcher->Accept('{'));
  ASSERT_TRUE(matcher->Accept('}'));
  ASSERT_TRUE(matcher->Accept(stops()[0]));
  EXPECT_EQ(count("{"), 0u) << "nothing follows a stop token";
  matcher->GoBack(2);
  EXPECT_EQ(count("\"a\":1}"), 6u);
}

// Where only one text may follow, each token of it is as long as possible.
TEST_F(GoBackTest, ForcedTextIsSpelledWithLongTokens) {
  const auto grammar =
      CompileNow(*compiler_,
                 GrammarSpec(EbnfPart("root ::= \"abcabc\" (\"x\" | \"y\") \"tru\" \"e12é\" tail | "
                                      "\"\"\ntail ::= \"ab\" tail | \"c\" \"ab\"")
                                 .value()));
  const auto matcher = grammar->NewMatcher(stops());
  const auto tokens = [&](const std::vector<std::string>& pieces) {
    Tokens found;
    for (const std::string& piece : pieces) {
      for (TokenId token = 0; token < vocabulary(); ++token) {
        if (tokenizer_.piece(token) == piece) found.push_back(token);
      }
    }
    return found;
  };
  const std::vector<uint32_t> before = Mask(*matcher);
  EXPECT_EQ(matcher->Forced({}, 9), Tokens()) << "the output may end here";
  EXPECT_EQ(matcher->Forced(tokens({"a"}), 9), tokens({"b", "c", "abc"})) << "then x or y";
  EXPECT_EQ(matcher->Forced(tokens({"a"}), 2), tokens({"b", "c"}));
  EXPECT_EQ(matcher->Forced(tokens({"x"}), 9), Tokens()) << "is not allowed";
  EXPECT_EQ(matcher->Forced(tokens({"abc", "abc", "y", "t"}), 9),
            tokens({"r", "u", "e", "12", "é"}));
  EXPECT_EQ(Mask(*matcher), before);
  for (const TokenId token : tokens({"abc", "abc", "y", "true", "12", "é", "c"})) {
    ASSERT_TRUE(matcher->Accept(token));
  }
  EXPECT_EQ(matcher->Forced({}, 9), tokens({"ab"})) << "and then the output ends";
  EXPECT_EQ(matcher->Forced(stops(), 9), Tokens());
}

// As the names of properties are.
TEST_F(GoBackTest, NamesOfPropertiesAreForced) {
  const Json schema = Json::parse(R"({"type": "object", "required": ["abcab", "x"], "properties": {
      "abcab": {"type": "boolean"}, "x": {"type": "null"}}})");
  const auto grammar = CompileNow(*compiler_, GrammarSpec(JsonSchemaPart(schema).value()));
  const auto matcher = grammar->NewMatcher(stops());
  Tokens output = {'{', '"'};
  const Tokens forced = matcher->Forced(output, 9);
  ASSERT_GE(forced.size(), 3u);
  EXPECT_EQ(tokenizer_.piece(forced[0]), "abc");
  EXPECT_EQ(tokenizer_.piece(forced[1]), "ab");
  EXPECT_EQ(tokenizer_.piece(forced[2])[0], '"');
}

}  // namespace
}  // namespace baton
