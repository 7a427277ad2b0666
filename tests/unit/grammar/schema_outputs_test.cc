// What the grammars of schemas allow, where XGrammar by itself would allow more; and its warnings.
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/grammar/grammar_spec.h"
#include "common/grammar/xgrammar/library_calls.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/unit/grammar/grammar_walk.h"

namespace xgrammar {

// What the library calls to write a line to its log (XGRAMMAR_LOG_CUSTOMIZE).
void LogMessageImpl(const std::string& file, int lineno, int level, const std::string& message);

}  // namespace xgrammar

namespace baton {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

class SchemaOutputs : public ::testing::Test {
 protected:
  // Whether an output that matches `schema` may begin with `text`.
  bool MayBegin(const char* schema, std::string_view text) {
    const auto part = JsonSchemaPart(Json::parse(schema));
    EXPECT_TRUE(part.ok()) << part.status();
    const auto grammar = CompileNow(*compiler_, GrammarSpec(*part));
    const auto matcher = grammar->NewMatcher(tokenizer_.spec().eos);
    for (const char c : text) {
      if (!matcher->Accept(static_cast<uint8_t>(c))) return false;
    }
    return true;
  }

  const Tokenizer tokenizer_ = BytesAnd({});
  const std::unique_ptr<GrammarCompiler> compiler_ = CompilerFor(tokenizer_);
};

TEST_F(SchemaOutputs, StringsWithBoundsAreJson) {
  const char* schema = R"({"type": "string", "minLength": 1, "maxLength": 3})";
  EXPECT_TRUE(MayBegin(schema, "\"ab\""));
  EXPECT_TRUE(MayBegin(schema, "\"abc\""));
  EXPECT_FALSE(MayBegin(schema, "\"\""));
  EXPECT_FALSE(MayBegin(schema, "\"abcd"));
  for (const char control : {'\x01', '\n', '\t', '\x1f'}) {
    EXPECT_FALSE(MayBegin(schema, std::string("\"a") + control)) << static_cast<int>(control);
  }
}

TEST_F(SchemaOutputs, FormatsHoldWhatTheirStandardsSay) {
  struct Case {
    const char* format;
    std::string text;
    bool valid;
  };
  const std::string label(61, 'a');
  const Case cases[] = {{"ipv4", "10.0.255.1", true},
                        {"ipv4", "01.0.0.0", false},
                        {"ipv4", "256.0.0.0", false},
                        {"date", "2024-02-29", true},
                        {"date", "2000-02-29", true},
                        {"date", "1900-02-29", false},
                        {"date", "2023-02-29", false},
                        {"date", "2024-02-30", false},
                        {"date", "2024-11-31", false},
                        {"date", "2024-12-31", true},
                        {"time", "10:22:59Z", true},
                        {"time", "10:22:60Z", false},
                        {"time", "10:22:599Z", false},
                        {"time", "10:22:59.5+05:30", true},
                        {"date-time", "2024-02-29T23:59:59Z", true},
                        {"date-time", "2024-04-31T23:59:59Z", false},
                        {"hostname", label + ".example.org", true},
                        {"hostname", label + "aaa.org", false},
                        {"hostname", "xn--a", false},
                        {"hostname", "a-b.c", true},
                        {"hostname", "-a", false},
                        {"hostname", "a.", false},
                        {"ipv6", "::", true},
                        {"ipv6", "1::8", true},
                        {"ipv6", "1:2:3:4:5:6:7::", true},
                        {"ipv6", "1:2:3:4:5:6:7:8", true},
                        {"ipv6", "1:2:3:4:5:6:7", false},
                        {"ipv6", "1::2::3", false},
                        {"duration", "P1Y2M3DT4H5M6S", true},
                        {"duration", "P", false},
                        {"duration", "PT", false},
                        {"email", "a.b@example.org", true},
                        {"email", "a b@example.org", false},
                        {"uri", "https://a.b/c?d#e", true},
                        {"uri", "no uri", false},
                        {"uri-reference", "../a?b", true},
                        {"uri-template", "/a{?b,c*}", true},
                        {"uri-template", "/a{b", false},
                        {"json-pointer", "/a~1b/0", true},
                        {"json-pointer", "/a~2", false},
                        {"relative-json-pointer", "1/a", true},
                        {"uuid", "123e4567-e89b-12d3-a456-426614174000", true}};
  for (const auto& [format, text, valid] : cases) {
    const std::string schema = Json{{"type", "string"}, {"format", format}}.dump();
    EXPECT_EQ(MayBegin(schema.c_str(), Json(text).dump()), valid) << format << " " << text;
  }
}

TEST_F(SchemaOutputs, EscapesNameNoHalfOfASurrogatePair) {
  for (const char* schema : {"true", R"({"type": "object"})", R"({"items": {"type": "string"}})"}) {
    const std::string begin = schema[2] == 't' && schema[10] == 'o' ? "{\"" : "[\"";
    EXPECT_TRUE(MayBegin(schema, begin + R"(\u0041\ud83d\ude00\uE000\n)")) << schema;
    EXPECT_FALSE(MayBegin(schema, begin + R"(\ud83dx)")) << schema;
    EXPECT_FALSE(MayBegin(schema, begin + R"(\ud83d\n)")) << schema;
    EXPECT_FALSE(MayBegin(schema, begin + R"(\udE00)")) << schema;
  }
}

TEST_F(SchemaOutputs, NumbersFitIntoADouble) {
  const char* number = R"({"type": "array", "items": {"type": "number"}})";
  for (const char* text : {"[1e99,", "[-0.5E-12,", "[123456789.5e+99,", "[1234567890123.25,"}) {
    EXPECT_TRUE(MayBegin(number, text)) << text;
  }
  EXPECT_TRUE(MayBegin(number, "[" + std::string(201, '1') + ","));
  for (const char* text : {"[1e100", "[1E1181", "[01"}) {
    EXPECT_FALSE(MayBegin(number, text)) << text;
  }
  EXPECT_FALSE(MayBegin(number, "[" + std::string(202, '1')));
  EXPECT_FALSE(MayBegin(R"({"type": "integer"})", std::string(202, '1')));
  EXPECT_FALSE(MayBegin(R"({"type": "integer", "minimum": 3})", std::string(20, '1')));
}

// The automata of some classes allow bytes that are no UTF-8, which no output has.
TEST_F(SchemaOutputs, ClassesStayWithinUtf8) {
  const GrammarPart parts[] = {*RegexPart("^.[^a]\\S$"),
                               *EbnfPart("root ::= [^a] [^b] [\\u0800-\\U0010FFFF]"),
                               *JsonSchemaPart({{"type", "string"}, {"pattern", "^.[^a]\\S$"}})};
  for (const GrammarPart& part : parts) {
    const auto grammar = CompileNow(*compiler_, GrammarSpec(part));
    const auto after = [&](std::string_view text) {
      const auto matcher = grammar->NewMatcher(tokenizer_.spec().eos);
      const bool quoted = part["type"] == "json_schema";
      EXPECT_TRUE(!quoted || matcher->Accept('"'));
      for (const char c : text) {
        if (!matcher->Accept(static_cast<uint8_t>(c))) return false;
      }
      return true;
    };
    EXPECT_TRUE(after("\u00e9\u4e2d\U0001F600"));
    for (const char* bytes :
         {"\xED\xA0", "\xE0\x80", "\xF0\x80", "\xF4\x90", "\xC0", "\x80", "\xF8"}) {
      EXPECT_FALSE(after(bytes)) << part.dump();
    }
  }
}

TEST(LibraryCalls, AWarningIsAnError) {
  const auto warn = [](int level) {
    return CallXGrammar([level] { xgrammar::LogMessageImpl("a.cc", 1, level, "not enforced"); });
  };
  EXPECT_TRUE(warn(1).ok());
  EXPECT_EQ(warn(2).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(warn(2))), HasSubstr("not enforced"));
  EXPECT_TRUE(CallXGrammar([] {}).ok()) << "a warning of an earlier call";
}

}  // namespace
}  // namespace baton
