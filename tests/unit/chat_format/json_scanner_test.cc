#include "common/chat_format/json_scanner.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/chat_format/python_value.h"

namespace baton {
namespace {

// The scanner and the JSON library agree.
TEST(JsonScanner, AcceptsExactlyJson) {
  for (const char* text : {"{}",
                           "[]",
                           "[1, -2.5e+3, 0.1, 0, 1E9]",
                           R"({"a": [true, false, null], "b": {}})",
                           "\"\"",
                           "\"é\\n\"",
                           "\"\\u00e9\"",
                           " 1 ",
                           "1.",
                           "01",
                           "-",
                           "1e",
                           ".5",
                           "+1",
                           "[1,]",
                           "[,1]",
                           "{,}",
                           R"({"a"})",
                           R"({"a":})",
                           R"({"a": 1,})",
                           "{a: 1}",
                           "tru",
                           "truex",
                           "\"\t\"",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "[1 2]",
                           "]",
                           "{]",
                           "[}",
                           "",
                           " ",
                           "\"",
                           "1 2",
                           "nul",
                           "[\"a\"",
                           R"({1: 2})",
                           "'a'"}) {
    EXPECT_EQ(IsJson(text), nlohmann::json::accept(text)) << text;
  }
}

TEST(JsonScanner, StopsBehindTheValue) {
  JsonScanner scanner;
  EXPECT_EQ(scanner.Scan(" {\"a\": \"}\"}"), 11u);
  EXPECT_EQ(scanner.state(), JsonScanner::State::kDone);
  EXPECT_EQ(scanner.Scan("x"), 0u);
  JsonScanner number;
  EXPECT_EQ(number.Scan("12,"), 2u);
  EXPECT_EQ(number.state(), JsonScanner::State::kDone);
  JsonScanner open;
  EXPECT_EQ(open.Scan("12"), 2u);
  EXPECT_EQ(open.state(), JsonScanner::State::kMore);
  EXPECT_EQ(open.Finish(), JsonScanner::State::kDone);
}

std::string FromPython(std::string_view text) {
  PythonValue value;
  std::string json;
  const PythonValue::State state = value.Read(text, json);
  if (state == PythonValue::State::kBad) return "bad";
  return state == PythonValue::State::kDone ? json : "more";
}

TEST(PythonValue, BecomesJson) {
  EXPECT_EQ(FromPython("None,"), "null");
  EXPECT_EQ(FromPython("(1, 'a',)"), "[1, \"a\"]");
  EXPECT_EQ(FromPython("{'a': {}, \"b\": []}"), "{\"a\": {}, \"b\": []}");
  EXPECT_EQ(FromPython("'\\x41\\u00e9\\q\\\\'"), "\"\\u0041\\u00e9\\\\q\\\\\"");
  for (const char* bad : {"x)", "1.2.3,", "{1: 2}", "[1 2]", "f'a'", "[)", "'\\xzz'", "0x1,"}) {
    EXPECT_EQ(FromPython(bad), "bad") << bad;
  }
  EXPECT_EQ(FromPython("[1, 2"), "more");
}

}  // namespace
}  // namespace baton
