// Classes and escapes of regular expressions against those of the standard library, which
// implements ECMAScript's: XGrammar rewrites them as EBNF, where they have other meanings.
#include <iterator>
#include <memory>
#include <random>
#include <regex>
#include <span>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/grammar/grammar_spec.h"
#include "common/grammar/regex/regex_anchors.h"
#include "common/grammar/regex/regex_parser.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/unit/grammar/grammar_walk.h"

namespace baton {
namespace {

constexpr int kAscii = 128;

class RegexOracleTest : public ::testing::Test {
 protected:
  // Compares which ASCII characters `pattern` matches. False when it is refused.
  bool Compare(const std::string& pattern, const std::regex& expected) {
    const auto part = RegexPart(pattern);
    if (!part.ok() || !CheckGrammar(GrammarSpec(*part)).ok()) return false;
    const auto grammar = CompileNow(*compiler_, GrammarSpec(*part));
    const auto mask = MaskAfter(
        *grammar, {}, tokenizer_.spec().eos, static_cast<int32_t>(tokenizer_.vocab_size()));
    std::string different;
    for (int c = 1; c < kAscii; ++c) {
      const std::string text(1, static_cast<char>(c));
      if (Allows(mask, c) != std::regex_match(text, expected)) different += text;
    }
    EXPECT_EQ(different, "") << pattern;
    return true;
  }

  // Compares random classes of `parts`. Returns how many were not refused.
  int CompareClasses(std::span<const char* const> parts, const std::string& opening) {
    std::mt19937_64 random(7);
    int compared = 0;
    for (int i = 0; i < 4000; ++i) {
      std::string pattern = opening;
      const size_t count = 1 + random() % 4;
      for (size_t k = 0; k < count; ++k) pattern += parts[random() % parts.size()];
      pattern += ']';
      try {
        compared += Compare(pattern, std::regex(pattern)) ? 1 : 0;
      } catch (const std::regex_error&) {
        // Not an expression of ECMAScript.
      }
    }
    return compared;
  }

  const Tokenizer tokenizer_ = BytesAnd({});
  const std::unique_ptr<GrammarCompiler> compiler_ = CompilerFor(tokenizer_);
};

TEST_F(RegexOracleTest, ClassesMatchTheSameCharacters) {
  static constexpr const char* kParts[] = {
      "a",     "f",     "z",       "1",   "^",   "-",   "[",     ".",     "$",     "\"",
      "(",     "|",     "/",       "\\^", "\\-", "\\]", "\\[",   "\\\\",  "\\.",   "\\n",
      "\\t",   "\\d",   "\\w",     "\\s", "\\D", "\\W", "\\S",   "\\x5e", "\\x2d", "\\x5d",
      "\\x01", "\\x61", "\\u005b", "\\0", "a-f", "0-9", "\\x5c", "\\x22", "\\b"};
  EXPECT_GT(CompareClasses(kParts, "["), 1000);
  EXPECT_GT(CompareClasses(kParts, "[^"), 1000);
}

// A random expression of a few characters.
std::string RandomExpression(std::mt19937_64& random) {
  static constexpr const char* kParts[] = {
      "a",     "b",    "a", ".", "[ab]", "[^a]", "(",   ")",   "|", "*", "+", "?", "{2}",
      "{1,2}", "{0,}", "^", "$", "\\d",  "1",    "\\w", "(?:", ")", "|", "^", "$"};
  std::string pattern;
  for (size_t i = 1 + random() % 8; i > 0; --i) pattern += kParts[random() % std::size(kParts)];
  return pattern;
}

TEST_F(RegexOracleTest, PatternsAreFoundInTheSameTexts) {
  std::mt19937_64 random(5);
  int compared = 0;
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string pattern = RandomExpression(random);
    const auto node = ParseRegex("it", pattern, GrammarLimits());
    if (!node.ok()) continue;
    const auto somewhere = MatchedSomewhere("it", *node);
    refused += somewhere.ok() ? 0 : 1;
    if (!somewhere.ok()) continue;
    try {
      const std::regex expected(pattern);
      for (int k = 0; k < 10; ++k) {
        std::string text;
        for (size_t length = random() % 5; length > 0; --length) text += "ab1-"[random() % 4];
        ASSERT_EQ(Matches(*somewhere, text), std::regex_search(text, expected))
            << pattern << " in '" << text << "'";
      }
      ++compared;
    } catch (const std::regex_error&) {
      // Not an expression of ECMAScript.
    }
  }
  EXPECT_GT(compared, 3'000);
  EXPECT_LT(refused, compared / 2);
}

TEST_F(RegexOracleTest, EscapesMatchTheSameCharacters) {
  for (const char* part :
       {"\\^", "\\$", "\\-", "\\]", "\\[",   "\\{",   "\\}",   "\\(",   "\\)",   "\\|",
        "\\/", "\\*", "\\+", "\\?", "\\\\",  "\\.",   "\\n",   "\\t",   "\\d",   "\\w",
        "\\s", "\\D", "\\W", "\\S", "\\x5e", "\\x2d", "\\x5d", "\\x01", "\\x22", "\\u005b",
        "\\0", "\"",  "-",   "]",   "}",     " ",     "#"}) {
    EXPECT_TRUE(Compare(part, std::regex(part))) << part;
  }
}

}  // namespace
}  // namespace baton
