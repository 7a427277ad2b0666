#include "common/grammar/number_rules.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/grammar/grammar_spec.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/unit/grammar/grammar_walk.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

class NumberRules : public ::testing::Test {
 protected:
  // Nothing when no number is allowed.
  std::shared_ptr<const Grammar> GrammarOf(const Json& schema) {
    EbnfRules rules;
    const std::string expression = NumberExpression(schema, rules);
    if (expression == kNoText) return nullptr;
    const GrammarPart part = {{"type", "grammar"}, {"grammar", rules.Grammar(expression)}};
    return CompileNow(*compiler_, GrammarSpec(part));
  }

  bool Accepts(const Grammar& grammar, std::string_view text) {
    const auto matcher = grammar.NewMatcher(tokenizer_.spec().eos);
    for (const char c : text) {
      if (!matcher->Accept(static_cast<uint8_t>(c))) return false;
    }
    return matcher->Accept(tokenizer_.spec().eos[0]);
  }

  const Tokenizer tokenizer_ = BytesAnd({});
  const std::unique_ptr<GrammarCompiler> compiler_ = CompilerFor(tokenizer_);
  std::mt19937_64 random_{5};
};

TEST_F(NumberRules, IntegersOfARange) {
  for (int turn = 0; turn < 60; ++turn) {
    const int size = turn % 3 == 0 ? 20 : turn % 3 == 1 ? 300 : 3'000;
    const auto draw = [&] { return static_cast<int>(random_() % (2 * size)) - size; };
    int low = draw();
    int high = draw();
    if (low > high) std::swap(low, high);
    const auto grammar =
        GrammarOf({{"type", "integer"}, {"minimum", low}, {"exclusiveMaximum", high + 1}});
    for (int i = 0; i < 200; ++i) {
      const int value = i < 8 ? (i % 2 == 0 ? low : high) + i / 2 - 2 : draw();
      ASSERT_EQ(Accepts(*grammar, std::to_string(value)), low <= value && value <= high)
          << value << " in " << low << " to " << high;
    }
    EXPECT_FALSE(Accepts(*grammar, "-0"));
    EXPECT_FALSE(Accepts(*grammar, "01"));
    EXPECT_FALSE(Accepts(*grammar, ""));
  }
}

TEST_F(NumberRules, IntegersOf64Bits) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const auto all = GrammarOf({{"type", "integer"}, {"minimum", kLeast}, {"maximum", kMost}});
  for (const char* text : {"-9223372036854775808", "9223372036854775807", "0", "-1", "100"}) {
    EXPECT_TRUE(Accepts(*all, text)) << text;
  }
  EXPECT_FALSE(Accepts(*all, "-9223372036854775809"));
  EXPECT_FALSE(Accepts(*all, "9223372036854775808"));
  EXPECT_EQ(GrammarOf({{"type", "integer"}, {"minimum", 3}, {"maximum", 2}}), nullptr);
  const auto free = GrammarOf({{"type", "integer"}});
  EXPECT_TRUE(Accepts(*free, "-123456789012345678901234567890"));
  EXPECT_FALSE(Accepts(*free, "1.0"));
  EXPECT_FALSE(Accepts(*free, std::string(202, '1')));
}

TEST_F(NumberRules, Multiples) {
  const auto seven = GrammarOf({{"type", "integer"}, {"multipleOf", 7}});
  const auto few =
      GrammarOf({{"type", "integer"}, {"multipleOf", 6}, {"minimum", -20}, {"maximum", 31}});
  for (int value = -300; value < 300; ++value) {
    EXPECT_EQ(Accepts(*seven, std::to_string(value)), value % 7 == 0) << value;
    EXPECT_EQ(Accepts(*few, std::to_string(value)), value % 6 == 0 && value >= -20 && value <= 31)
        << value;
  }
  EXPECT_FALSE(Accepts(*seven, "-0"));
  EXPECT_FALSE(Accepts(*seven, "07"));
}

TEST_F(NumberRules, NumbersOfARange) {
  const double bounds[] = {
      0, 1, -1, 0.5, -2.25, 9.999, 10, 100.001, -0.000001, 1e6, 123.456789, 1e15};
  for (int turn = 0; turn < 60; ++turn) {
    double low = bounds[random_() % std::size(bounds)];
    double high = bounds[random_() % std::size(bounds)];
    if (low > high) std::swap(low, high);
    const bool exclusive = turn % 2 == 1;
    const auto grammar = GrammarOf({{"type", "number"},
                                    {exclusive ? "exclusiveMinimum" : "minimum", low},
                                    {exclusive ? "exclusiveMaximum" : "maximum", high}});
    if (low == high && exclusive) {
      EXPECT_EQ(grammar, nullptr);
      continue;
    }
    const auto allowed = [&](double value) {
      return exclusive ? low < value && value < high : low <= value && value <= high;
    };
    for (int i = 0; i < 200; ++i) {
      double value = bounds[random_() % std::size(bounds)];
      if (i % 4 != 0) value += static_cast<double>(random_() % 2'001) / 1000 - 1;
      const std::string text = fmt::format("{:.{}f}", value, i % 7);
      const double real = std::stod(text);
      if (real == 0 && text[0] == '-') continue;  // not written
      ASSERT_EQ(Accepts(*grammar, text), allowed(real))
          << text << " in " << low << " to " << high << (exclusive ? ", exclusive" : "");
    }
    for (int i = 0; i < 20; ++i) {
      const auto text = RandomOutput(*grammar, tokenizer_, random_);
      ASSERT_TRUE(text.has_value());
      ASSERT_TRUE(allowed(std::stod(*text))) << *text << " in " << low << " to " << high;
      ASSERT_TRUE(Json::accept(*text)) << *text;
    }
  }
}

TEST_F(NumberRules, NumbersWithOtherBounds) {
  const auto free = GrammarOf({{"type", "number"}});
  for (const char* text : {"0", "-1.5e10", "3E-7", "0.25", "12"}) EXPECT_TRUE(Accepts(*free, text));
  for (const char* text : {"01", ".5", "1.", "1e100", "+1"}) EXPECT_FALSE(Accepts(*free, text));
  const auto large = GrammarOf({{"type", "number"}, {"minimum", -1e300}, {"maximum", 1e300}});
  EXPECT_TRUE(Accepts(*large, "1" + std::string(299, '0')));
  EXPECT_FALSE(Accepts(*large, "1" + std::string(301, '0')));
  const auto small =
      GrammarOf({{"type", "number"}, {"minimum", 0.00000001}, {"maximum", 0.00000003}});
  EXPECT_TRUE(Accepts(*small, "0.00000002"));
  EXPECT_FALSE(Accepts(*small, "0"));
  EXPECT_FALSE(Accepts(*small, "0.00000004"));
}

}  // namespace
}  // namespace baton
