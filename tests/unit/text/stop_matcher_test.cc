#include "common/text/stop_matcher.h"

#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const StopStrings> Stops(const std::vector<std::string>& strings) {
  auto stops = StopStrings::Create(strings);
  EXPECT_TRUE(stops.ok()) << Message(stops.status());
  return std::make_shared<const StopStrings>(*std::move(stops));
}

struct Result {
  std::string text;
  int index = -1;
  bool operator==(const Result&) const = default;
};

Result Feed(StopMatcher matcher, const std::string& text, size_t step) {
  std::string shown;
  for (size_t pos = 0; pos < text.size(); pos += step)
    shown += matcher.Append(text.substr(pos, step));
  shown += matcher.Flush();
  return {shown, matcher.stop_index()};
}

// The expected result by its definition: tries every end and every string.
Result Oracle(const std::vector<std::string>& strings, const std::string& text, bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int best = -1;
    for (size_t i = 0; i < strings.size(); ++i) {
      const bool longer = best < 0 || strings[i].size() > strings[static_cast<size_t>(best)].size();
      if (text.substr(0, end).ends_with(strings[i]) && longer) best = static_cast<int>(i);
    }
    if (best < 0) continue;
    return {text.substr(0, include ? end : end - strings[static_cast<size_t>(best)].size()), best};
  }
  return {text, -1};
}

TEST(StopMatcher, AgreesWithTheDefinitionOnRandomText) {
  std::mt19937 random(7);
  const auto text_of = [&random](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text.push_back("abc"[random() % 3]);
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> strings;
    for (size_t i = 0; i < 1 + random() % 4; ++i) strings.push_back(text_of(1 + random() % 5));
    const std::string text = text_of(random() % 30);
    const bool include = random() % 2 == 0;
    for (const size_t step : {size_t{1}, size_t{3}, size_t{100}}) {
      EXPECT_EQ(Feed(StopMatcher(Stops(strings), include), text, step),
                Oracle(strings, text, include))
          << text;
    }
  }
}

TEST(StopMatcher, ShowsTextAsSoonAsItCannotBeAStop) {
  StopMatcher matcher(Stops({"\nUser:"}), false);
  EXPECT_EQ(matcher.Append("Hello"), "Hello");
  EXPECT_EQ(matcher.Append("\nUs"), "");
  EXPECT_EQ(matcher.Append("e a"), "\nUse a");
  EXPECT_EQ(matcher.Append("b\nUser"), "b");
  EXPECT_EQ(matcher.Append(": more"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.Append("x"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, PassesOverWhatEndsBeforeItMayStop) {
  StopMatcher matcher(Stops({"abc", "cab"}), false);
  // Text that may begin a later stop string is still held back.
  EXPECT_EQ(matcher.Append("xabc", /*may_stop=*/false), "x");
  EXPECT_EQ(matcher.Append("a", /*may_stop=*/false), "ab");
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.Append("b"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.stop_index(), 1);
}

TEST(StopMatcher, TenThousandStringsAreFine) {
  std::vector<std::string> strings;
  for (int i = 0; i < 10'000; ++i) strings.push_back("stop number " + std::to_string(i) + ".");
  StopMatcher matcher(Stops(strings), true);
  EXPECT_EQ(matcher.Append("a stop number 12x"), "a stop number 12x");
  EXPECT_EQ(matcher.Append(" stop number 9876. and"), " stop number 9876.");
  EXPECT_EQ(matcher.stop_index(), 9876);
}

TEST(StopMatcher, BadStringsAreRefusedByName) {
  const auto message = [](const std::vector<std::string>& strings) {
    return std::string(Message(StopStrings::Create(strings).status()));
  };
  EXPECT_THAT(message({"a", ""}), HasSubstr("stop[1] is empty"));
  EXPECT_THAT(message({"\xC3"}), HasSubstr("stop[0] is not valid UTF-8"));
  EXPECT_THAT(message({std::string((1 << 20) + 1, 'a')}), HasSubstr("more than 1048576 bytes"));
  EXPECT_EQ(StopMatcher(Stops({}), false).Append("all"), "all");
}

}  // namespace
}  // namespace baton
