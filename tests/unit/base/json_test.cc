#include "common/base/json.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/compare_meter.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Nested(const std::string& open, const std::string& close, int levels) {
  std::string text;
  for (int i = 0; i < levels; ++i) text += open;
  text += "1";
  for (int i = 0; i < levels; ++i) text += close;
  return text;
}

TEST(JsonTest, ReadsWhatTheLibraryReads) {
  const char* const texts[] = {
      R"({"a": [1, -2, 2.5, true, false, null, "é\n"], "b": {}, "c": [[], {"d": "x"}]})",
      "18446744073709551615",
      "-9223372036854775808",
      " \"text\" ",
      "[]",
      R"({"b": 1, "a": 2})"};
  for (const char* text : texts) {
    const auto sorted = ParseJson("the text", text);
    ASSERT_TRUE(sorted.ok()) << sorted.status();
    EXPECT_EQ(*sorted, nlohmann::json::parse(text));
    const auto ordered = ParseOrderedJson("the text", text);
    ASSERT_TRUE(ordered.ok()) << ordered.status();
    EXPECT_EQ(ordered->dump(), nlohmann::ordered_json::parse(text).dump());
  }
}

TEST(JsonTest, KeepsTheOrderOfMembersAndTheLastOfEqualKeys) {
  std::string text = "{";
  for (int i = 100; i > 0; --i) {
    text += fmt::format("\"k{}\": 0, \"k{}\": {}, ", i % 50, i, i);
  }
  text += "\"last\": 1}";
  // The library's own parser gives the same result, in quadratic time.
  EXPECT_EQ(ParseOrderedJson("the text", text)->dump(), nlohmann::ordered_json::parse(text).dump());
  EXPECT_EQ(ParseJson("the text", R"({"a": 1, "a": 2})")->dump(), R"({"a":2})");
}

// Each member takes at most this many comparisons of keys. In quadratic time, each of kManyKeys
// members would take half of kManyKeys.
constexpr size_t kComparisonsPerMember = 40;
constexpr int kManyKeys = 4000;

TEST(JsonTest, ComparesKeysInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < kManyKeys; ++i) {
    text += fmt::format("{}\"key{:08}\": {}", i == 0 ? "" : ", ", i * 7919LL % kManyKeys, i);
  }
  text += "}";
  for (const bool ordered : {false, true}) {
    const CompareMeter meter;
    const size_t size =
        ordered ? ParseOrderedJson("x", text)->size() : ParseJson("x", text)->size();
    const size_t comparisons = meter.count();
    EXPECT_EQ(size, static_cast<size_t>(kManyKeys));
    EXPECT_GT(comparisons, 0u) << "the meter must see the comparisons";
    EXPECT_LT(comparisons, kComparisonsPerMember * kManyKeys) << "ordered: " << ordered;
  }
}

TEST(JsonTest, DepthIsBoundedWhileParsing) {
  for (const auto& [open, close] : {std::pair("[", "]"), std::pair("{\"a\":", "}")}) {
    EXPECT_TRUE(ParseJson("x", Nested(open, close, kMaxJsonDepth)).ok());
    EXPECT_TRUE(ParseOrderedJson("x", Nested(open, close, kMaxJsonDepth)).ok());
    for (const int levels : {kMaxJsonDepth + 1, 500'000}) {
      EXPECT_EQ(ParseJson("x", Nested(open, close, levels)).status().code(),
                StatusCode::kInvalidArgument);
      EXPECT_EQ(ParseOrderedJson("x", Nested(open, close, levels)).status().code(),
                StatusCode::kInvalidArgument);
    }
  }
  // Brackets that are never closed.
  EXPECT_FALSE(ParseJson("x", std::string(8 << 20, '[')).ok());
}

TEST(JsonTest, ErrorsNameTheMemberAndTheLimit) {
  const auto deep = [](const std::string& before, const std::string& after) {
    const std::string text = before + Nested("[", "]", 100) + after;
    return std::string(Message(ParseOrderedJson("the body", text).status()));
  };
  EXPECT_EQ(deep(R"({"messages": [{"role": "user"}, {"tool_calls": )", "}]}"),
            "the body: messages[1].tool_calls is nested more than 60 levels deep; at most 60 are "
            "allowed");
  EXPECT_EQ(deep("", ""), "the body is nested more than 60 levels deep; at most 60 are allowed");
  EXPECT_THAT(deep("{\"" + std::string(5000, 'k') + "\":", "}").size(), ::testing::Lt(400u));
}

TEST(JsonTest, ErrorsNameThePlace) {
  const std::pair<std::string, const char*> cases[] = {
      {"{\"a\": 1,\n  b}", "f.json is not valid JSON in UTF-8: line 2, column 3: "},
      {"", "f.json is not valid JSON in UTF-8: line 1, column 1: "},
      {"[1] 2", "line 1, column 5: "},
      {"[1e999]", "f.json is not valid JSON in UTF-8: line 1, column "},
      {"\"\xFF\"", "line 1, column 2: "}};
  for (const auto& [text, expected] : cases) {
    const Status status = ParseJson("f.json", text).status();
    EXPECT_THAT(std::string(Message(status)), HasSubstr(expected)) << text;
    EXPECT_THAT(std::string(Message(status)), StartsWith("f.json ")) << text;
  }
  const std::string huge = "{\"a\": \"" + std::string(1 << 20, 'x');
  EXPECT_LT(Message(ParseJson("f.json", huge).status()).size(), 300u);
}

}  // namespace
}  // namespace baton
