// What the grammars of schemas allow, where XGrammar by itself would allow more; and its warnings.
#include <string>
#include <string_view>
#include <vector>

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
  // Whether an output that matches `schema` may begin with `text`; with `whole`: and may end then.
  bool MayBegin(const char* schema, std::string_view text, bool whole = false) {
    const auto part = JsonSchemaPart(Json::parse(schema));
    EXPECT_TRUE(part.ok()) << schema << part.status();
    const auto grammar = CompileNow(*compiler_, GrammarSpec(*part));
    const auto matcher = grammar->NewMatcher(tokenizer_.spec().eos);
    for (const char c : text) {
      if (!matcher->Accept(static_cast<uint8_t>(c))) return false;
    }
    return !whole || matcher->Accept(tokenizer_.spec().eos[0]);
  }

  bool MayBe(const char* schema, std::string_view text) { return MayBegin(schema, text, true); }

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
                        {"regex", "^(?:a|b)+[\\w\\-]{3}$", true},
                        {"regex", "(a", false},
                        {"regex", "a**", false},
                        {"url", "https://a.b", true},
                        {"iri", "no uri", false},
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

// Schemas that a value must match at once.
TEST_F(SchemaOutputs, AllSchemasBesideEachOtherAreEnforced) {
  struct Case {
    const char* schema;
    std::vector<const char*> valid;
    std::vector<const char*> invalid;
  };
  const Case cases[] = {
      {R"({"allOf": [{"type": "integer", "minimum": 3}, {"type": "number", "maximum": 5}]})",
       {"3", "5"},
       {"2", "6", "4.0"}},
      {R"({"properties": {"a": {"type": "null"}, "b": {"type": "null"}},
           "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
       {R"({"a":null})", R"({"b":null})", R"({"a":null,"b":null})"},
       {"{}", R"({"a":1})"}},
      {R"({"properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}},
           "oneOf": [{"required": ["a"]}, {"required": ["b", "c"]}]})",
       {R"({"a":null})", R"({"b":null,"c":null})"},
       {"{}", R"({"b":null})", R"({"a":null,"b":null,"c":null})"}},
      {R"({"allOf": [{"properties": {"a": {"type": ["null", "boolean"]}}},
                     {"properties": {"a": {"type": ["null", "integer"]}}, "required": ["a"]}]})",
       {R"({"a":null})"},
       {"{}", R"({"a":true})", R"({"a":1})"}},
      {R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": {"type": "null"}},
                     {"properties": {"b": {}}, "required": ["b"]}]})",
       {R"({"b":null})", R"({"a":1,"b":null})"},
       {R"({"b":1})"}},
      {R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": false},
                     {"properties": {"b": {}}}]})",
       {"{}", R"({"a":1})"},
       {R"({"b":1})"}},
      {R"({"allOf": [{"patternProperties": {"^x": {"type": "null"}}},
                     {"properties": {"xa": {}, "y": {}}}]})",
       {R"({"xa":null,"y":1})"},
       {R"({"xa":1})"}},
      {R"({"properties": {"xa": {"type": ["null", "boolean"]}},
           "patternProperties": {"^x": {"type": ["null", "integer"]}}})",
       {R"({"xa":null})"},
       {R"({"xa":true})", R"({"xa":1})"}},
      {R"({"allOf": [{"enum": ["ab", "abc", 7, null]}, {"minLength": 3},
                     {"not": {"type": "number"}}]})",
       {R"("abc")", "null"},
       {R"("ab")", "7"}},
      {R"({"enum": [{"a": 1, "b": 2}, {"a": 2}], "properties": {"a": {"const": 1}}})",
       {R"({"a":1,"b":2})"},
       {R"({"a":2})"}},
      {R"({"$ref": "#/$defs/list", "maxItems": 1,
           "$defs": {"list": {"type": "array", "items": {"type": "null"}}}})",
       {"[]", "[null]"},
       {"[null,null]", "[1]"}},
      {R"({"allOf": [{"$ref": "#/$defs/a"}, {"anyOf": [{"type": "null"}, {"maxLength": 1}]}],
           "$defs": {"a": {"type": ["string", "null", "boolean"]}}})",
       {"null", R"("a")"},
       {R"("ab")"}},
      {R"({"properties": {"a": false, "b": {}}, "additionalProperties": true})",
       {"{}", R"({"b":1})"},
       {R"({"a":1})", R"({"c":1})"}},
      {R"({"oneOf": [{"type": "object", "properties": {"d": {}}, "required": ["d"]},
                     {"type": "object", "properties": {"c": {}}, "required": ["c"]}]})",
       {R"({"d":1})", R"({"c":1})"},
       {"{}", R"({"c":1,"d":1})", R"({"d":1,"c":1})"}},
      {R"({"properties": {"a": {}, "b": {}, "c": {}}, "dependentRequired": {"a": ["b"]},
           "dependentSchemas": {"b": {"properties": {"c": {"type": "null"}}}}})",
       {"{}", R"({"c":1})", R"({"a":1,"b":1})", R"({"b":1,"c":null})"},
       {R"({"a":1})", R"({"b":1,"c":1})", R"({"a":1,"c":1})"}},
      {R"({"patternProperties": {"^a": {"type": ["null", "integer"]}, "b$": {"type": "null"}}})",
       {R"({"a":null})", R"({"xb":null})"},
       {R"({"ab":1})", R"({"x":null})"}},
      {R"({"type": "number", "multipleOf": 3.0})", {"3", "-6"}, {"4", "3.5"}}};
  for (const auto& [schema, valid, invalid] : cases) {
    for (const char* text : valid) EXPECT_TRUE(MayBe(schema, text)) << schema << " " << text;
    for (const char* text : invalid) EXPECT_FALSE(MayBe(schema, text)) << schema << " " << text;
  }
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
