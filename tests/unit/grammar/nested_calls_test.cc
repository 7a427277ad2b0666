// Calls in formats with a syntax of their own for nested values: those of Gemma 4 and MiniMax M3.
#include "common/grammar/nested_calls.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/chat_format/chat_parser.h"
#include "common/grammar/call_grammar.h"
#include "common/grammar/format_parts.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/schema_check.h"
#include "common/grammar/value_match.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/unit/grammar/grammar_walk.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr ToolCallFormat kFormats[] = {ToolCallFormat::kGemma, ToolCallFormat::kMiniMaxM3};

std::vector<CallableTool> ToolOf(const Json& parameters) {
  auto checked = CheckedSchema(parameters, GrammarLimits(), SchemaUse::kCall);
  EXPECT_TRUE(checked.ok()) << parameters << checked.status();
  return {{"f", *std::move(checked), parameters}};
}

Json Properties(const char* properties) {
  return {{"type", "object"}, {"properties", Json::parse(properties)}};
}

class NestedCalls : public ::testing::Test {
 protected:
  std::shared_ptr<const Grammar> GrammarOf(ToolCallFormat format, const Json& parameters) {
    const auto part = CallsPart({format}, ToolOf(parameters), true);
    EXPECT_TRUE(part.ok()) << part.status();
    return part.ok() ? Compiled(*part) : nullptr;
  }

  std::shared_ptr<const Grammar> Compiled(const GrammarPart& part) {
    return CompileNow(*compiler_, GrammarSpec(part));
  }

  // Whether an output may be `text`, or begin with it if not `whole`.
  bool Accepts(const Grammar& grammar, std::string_view text, bool whole = true) {
    const auto matcher = grammar.NewMatcher(tokenizer_.spec().eos);
    for (const char c : text) {
      if (!matcher->Accept(static_cast<uint8_t>(c))) return false;
    }
    return !whole || matcher->Accept(tokenizer_.spec().eos[0]);
  }

  void ExpectValidArguments(int count);

  // A call of f with what stands between its name and the end of the call.
  static std::string CallOf(ToolCallFormat format, const std::string& arguments) {
    if (format == ToolCallFormat::kGemma) return "<|tool_call>call:f" + arguments + "<tool_call|>";
    // A tag in the test is written without the token that stands before each.
    std::string tags;
    const std::string text =
        "<tool_call>\n<invoke name=\"f\">" + arguments + "</invoke>\n</tool_call>";
    for (const char c : text) tags += c == '<' ? "]<]minimax[>[<" : std::string(1, c);
    return tags;
  }

  // The arguments of the only call in `text`; discarded when there is something else.
  static Json Read(ToolCallFormat format, const std::string& text, const Json& parameters) {
    const Json tools = {
        {{"type", "function"}, {"function", {{"name", "f"}, {"parameters", parameters}}}}};
    ChatParser parser({.calls = format, .tools = std::make_shared<const ToolSchemas>(tools)});
    std::vector<ChatEvent> events = parser.Append(text);
    for (ChatEvent& event : parser.Finish()) events.push_back(std::move(event));
    std::string arguments;
    int ended = 0;
    for (const ChatEvent& event : events) {
      EXPECT_NE(event.kind, ChatEvent::Kind::kContent) << text;
      ended += event.kind == ChatEvent::Kind::kCallEnd ? 1 : 0;
      if (event.kind == ChatEvent::Kind::kArguments) arguments += event.text;
    }
    EXPECT_EQ(ended, 1) << text;
    return Json::parse(arguments, nullptr, false);
  }

  const Tokenizer tokenizer_ = BytesAnd({"<|\"|>", "]<]minimax[>[", "},", "</"});
  const std::unique_ptr<GrammarCompiler> compiler_ = CompilerFor(tokenizer_);
  std::mt19937_64 random_{17};
};

TEST_F(NestedCalls, OfGemmaAreWrittenAsTheTemplateWritesThem) {
  const Json parameters = Properties(R"({
      "text": {"type": "string"}, "Count": {"type": "integer", "minimum": 0, "maximum": 99},
      "list": {"type": "array", "items": {"type": "number"}},
      "deep": {"type": "object", "properties": {"b": {"type": "null"}, "a": {"type": "boolean"}},
               "required": ["b"]},
      "any": {}, "unit": {"enum": ["C", 1, null]}})");
  const auto grammar = GrammarOf(ToolCallFormat::kGemma, parameters);
  const auto accepts = [&](const std::string& arguments) {
    return Accepts(*grammar, CallOf(ToolCallFormat::kGemma, arguments));
  };
  for (
      const char* arguments :
      {"{}",
       R"({any:{x:[1,<|"|>a<|"|>,None,true],y:{}},Count:7,deep:{a:true,b:None},list:[1.5,-2],text:<|"|>a "b"<c>
<|"|>,unit:<|"|>C<|"|>})",
       R"({Count:70})",
       R"({list:[],unit:None})",
       R"({text:<|"|><|"|>,unit:1})"}) {
    EXPECT_TRUE(accepts(arguments)) << arguments;
  }
  for (const char* arguments : {R"({text:<|"|>a<|"|>,Count:7})",
                                R"({Count:7,})",
                                R"({Count: 7})",
                                R"({"Count":7})",
                                R"({<|"|>Count<|"|>:7})",
                                R"({Count:<|"|>7<|"|>})",
                                R"({Count:100})",
                                R"({deep:{a:true}})",
                                R"({deep:{b:null}})",
                                R"({unit:C})",
                                R"({text:"a"})",
                                R"({text:<|"|>a<tool_call|><|"|>})",
                                R"({other:1})",
                                R"({list:[1,]})"}) {
    EXPECT_FALSE(accepts(arguments)) << arguments;
  }
}

TEST_F(NestedCalls, OfMiniMaxM3AreWrittenAsTheTemplateWritesThem) {
  const Json parameters = Properties(R"({
      "text": {"type": "string"}, "count": {"type": "integer", "minimum": 0, "maximum": 99},
      "list": {"type": "array", "items": {"type": "number"}},
      "deep": {"type": "object", "properties": {"b": {"type": "null"}, "a": {"type": "boolean"}},
               "required": ["b"]},
      "any": {}, "unit": {"enum": ["C", "F"]}})");
  const auto grammar = GrammarOf(ToolCallFormat::kMiniMaxM3, parameters);
  const auto accepts = [&](const std::string& arguments) {
    return Accepts(*grammar, CallOf(ToolCallFormat::kMiniMaxM3, arguments));
  };
  for (const char* arguments :
       {"",
        "<text> two words\n </text><count>7</count><list><item>1.5</item><item>-2</item></list>"
        "<deep><b>null</b><a>true</a></deep><any><item>a</item><item><item>b</item></item></any>"
        "<unit>C</unit>",
        "<text></text><list></list><any>{\"a\": 1}</any>"}) {
    EXPECT_TRUE(accepts(arguments)) << arguments;
  }
  for (const char* arguments : {"<count>7</count><text>a</text>",
                                "<count>7</text>",
                                "<count>100</count>",
                                "<count> 7</count>",
                                "<count>\"7\"</count>",
                                "<deep><a>true</a></deep>",
                                "<deep></deep>",
                                "<unit>K</unit>",
                                "<list>1</list>",
                                "<list><item>1</item><other>2</other></list>",
                                "<text>a</invoke>",
                                "<other>1</other>"}) {
    EXPECT_FALSE(accepts(arguments)) << arguments;
  }
}

// What a text of MiniMax M3 is, the parser knows of the schema. What could be two things is JSON.
TEST_F(NestedCalls, ValuesOfMiniMaxM3AreWhatTheParserReads) {
  const Json parameters = Properties(R"({
      "mixed": {"type": ["string", "integer"], "pattern": "^[0-9]$"},
      "maybe": {"type": ["string", "null"]},
      "either": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"},
                           {"type": "object", "properties": {"a": {"type": "string"}}}]},
      "map": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 2}},
      "lists": {"type": "array", "minItems": 1, "items": {"type": ["array", "null"], "items": {}}},
      "left": {"type": ["string", "integer"], "enum": ["7", 1], "not": {"const": 1}}})");
  const auto grammar = GrammarOf(ToolCallFormat::kMiniMaxM3, parameters);
  struct Case {
    const char* arguments;
    const char* read;  // null: not written
  };
  const Case cases[] = {
      {"<mixed>\"7\"</mixed>", R"({"mixed": "7"})"},
      {"<mixed>7</mixed>", R"({"mixed": 7})"},
      {"<mixed>a</mixed>", nullptr},
      {"<maybe>null</maybe>", R"({"maybe": "null"})"},
      {"<maybe>7</maybe>", R"({"maybe": "7"})"},
      {"<either>\"[]\"</either>", R"({"either": "[]"})"},
      {"<either>[]</either>", R"({"either": []})"},
      {"<either>{}</either>", R"({"either": {}})"},
      {"<either><item>a</item></either>", R"({"either": ["a"]})"},
      {"<either><a>7</a></either>", R"({"either": {"a": "7"}})"},
      {"<either></either>", nullptr},
      {"<map>{\"k\": \"7\", \"l\": \"\\u003c\"}</map>", R"({"map": {"k": "7", "l": "<"}})"},
      {"<map>{}</map>", R"({"map": {}})"},
      {"<map>{\"k\": 7}</map>", nullptr},
      {"<map><k>7</k></map>", nullptr},
      {"<lists><item></item><item>null</item></lists>", R"({"lists": [[], null]})"},
      {"<lists></lists>", nullptr},
      {"<left>\"7\"</left>", R"({"left": "7"})"},
      {"<left>7</left>", nullptr}};
  for (const auto& [arguments, read] : cases) {
    const std::string call = CallOf(ToolCallFormat::kMiniMaxM3, arguments);
    EXPECT_EQ(Accepts(*grammar, call), read != nullptr) << arguments;
    if (read == nullptr) continue;
    EXPECT_EQ(Read(ToolCallFormat::kMiniMaxM3, call, parameters), Json::parse(read)) << arguments;
  }
}

// Random calls with arguments of all schemas that the tests of JSON have, `count` of each, read by
// the parser.
void NestedCalls::ExpectValidArguments(int count) {
  std::ifstream file(std::string(BATON_TEST_DATA) + "/grammar/schemas.json");
  int refused = 0;
  int matched = 0;
  for (Json schema : Json::parse(file)) {
    Json parameters = {{"type", "object"}};
    if (schema.is_object() && schema.contains("$defs")) {
      parameters["$defs"] = schema["$defs"];
      schema.erase("$defs");
    }
    parameters["properties"] = {{"a", schema}, {"b", schema}};
    parameters["required"] = {"a"};
    for (const ToolCallFormat format : kFormats) {
      SCOPED_TRACE(fmt::format("{} {}", static_cast<int>(format), parameters.dump()));
      const auto part = CallsPart({format}, ToolOf(parameters), true);
      if (!part.ok()) {
        EXPECT_EQ(part.status().code(), StatusCode::kInvalidArgument);
        EXPECT_THAT(std::string(Message(part.status())),
                    ::testing::ContainsRegex("minProperties|patternProperties|large"));
        ++refused;
        continue;
      }
      const auto grammar = Compiled(*part);
      ASSERT_NE(grammar, nullptr);
      const GrammarLimits limits;
      for (int i = 0; i < count; ++i) {
        const auto text = RandomOutput(*grammar, tokenizer_, random_, 1500);
        if (!text.has_value()) continue;
        const Json arguments = Read(format, *text, parameters);
        ValueMatcher matcher(parameters, limits);
        const std::optional<bool> matches = matcher.Matches(parameters, arguments);
        ASSERT_NE(matches, false) << *text << "\n" << arguments;
        matched += matches.has_value() ? 1 : 0;  // it does not know all formats of strings
      }
    }
  }
  EXPECT_LT(refused, 12);
  EXPECT_GT(matched, 80 * count) << refused;
}

TEST_F(NestedCalls, ArgumentsMatchTheirSchemas) {
  ExpectValidArguments(12);
}

TEST_F(NestedCalls, DISABLED_ManyArgumentsMatchTheirSchemas) {
  ExpectValidArguments(400);
}

TEST_F(NestedCalls, SchemasMayReferToThemselves) {
  const Json parameters = Json::parse(R"({"type": "object", "required": ["node"],
      "properties": {"node": {"$ref": "#/$defs/node"}},
      "$defs": {"node": {"type": "object", "required": ["id"], "properties": {
          "id": {"type": "integer", "maximum": 9, "minimum": 0},
          "next": {"$ref": "#/$defs/node"},
          "many": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}})");
  const auto gemma = GrammarOf(ToolCallFormat::kGemma, parameters);
  EXPECT_TRUE(Accepts(*gemma,
                      CallOf(ToolCallFormat::kGemma,
                             "{node:{id:1,many:[{id:2},{id:3,next:{id:4}}],next:{id:5}}}")));
  EXPECT_FALSE(Accepts(*gemma, "<|tool_call>call:f{node:{id:1,next:{many", false));
  const auto minimax = GrammarOf(ToolCallFormat::kMiniMaxM3, parameters);
  EXPECT_TRUE(Accepts(*minimax,
                      CallOf(ToolCallFormat::kMiniMaxM3,
                             "<node><id>1</id><next><id>2</id><many><item><id>3</id></item></many>"
                             "</next></node>")));
  EXPECT_FALSE(Accepts(*minimax,
                       CallOf(ToolCallFormat::kMiniMaxM3, "<node><id>1</id><next></next></node>")));
}

// A model may call with any arguments where nothing is stated of them.
TEST_F(NestedCalls, UndeclaredArgumentsHaveAnyName) {
  for (const char* schema :
       {R"({"type": "object"})",
        R"({"type": "object", "additionalProperties": {"type": "integer"}})"}) {
    const Json parameters = Json::parse(schema);
    for (const ToolCallFormat format : kFormats) {
      const auto grammar = GrammarOf(format, parameters);
      for (int i = 0; i < 60; ++i) {
        const auto text = RandomOutput(*grammar, tokenizer_, random_, 1500);
        if (!text.has_value()) continue;
        const Json read = Read(format, *text, parameters);
        ASSERT_TRUE(read.is_object()) << *text;
        if (parameters.size() == 1) continue;
        for (const Json& value : read) ASSERT_TRUE(value.is_number()) << *text;
      }
    }
  }
  const auto minimax = GrammarOf(ToolCallFormat::kMiniMaxM3, Json::parse(R"({"type": "object"})"));
  for (const char* name : {"items", "tool_calls", "invoker", "i", "_1", "a"}) {
    EXPECT_TRUE(Accepts(*minimax,
                        CallOf(ToolCallFormat::kMiniMaxM3, fmt::format("<{}>1</{}>", name, name))));
  }
  for (const char* name : {"item", "tool_call", "invoke", "1", ""}) {
    EXPECT_FALSE(Accepts(*minimax,
                         CallOf(ToolCallFormat::kMiniMaxM3, fmt::format("<{}>1</{}>", name, name))))
        << name;
  }
}

// The parser takes no name of more than 4,096 bytes.
TEST_F(NestedCalls, UndeclaredNamesAreBounded) {
  const Json parameters = Json::parse(R"({"type": "object"})");
  const auto gemma = GrammarOf(ToolCallFormat::kGemma, parameters);
  const auto minimax = GrammarOf(ToolCallFormat::kMiniMaxM3, parameters);
  const auto glm = GrammarOf(ToolCallFormat::kGlm, parameters);
  for (const size_t size : {1, 250, 270, 5'000}) {
    const std::string name(size, 'i');
    EXPECT_EQ(Accepts(*gemma, CallOf(ToolCallFormat::kGemma, fmt::format("{{{}:1}}", name))),
              size <= 256);
    const std::string element = fmt::format("<{}>1</{}>", name, name);
    EXPECT_EQ(Accepts(*minimax, CallOf(ToolCallFormat::kMiniMaxM3, element)), size <= 256);
    const std::string tagged = fmt::format("<tool_call>f\n<arg_key>{}</arg_key>", name);
    EXPECT_EQ(Accepts(*glm, tagged, /*whole=*/false), size <= 256);
  }
}

TEST_F(NestedCalls, WhatAFormatCannotWriteIsRefusedByName) {
  struct Case {
    ToolCallFormat format;
    const char* schema;
    const char* named;
  };
  constexpr ToolCallFormat kGemma = ToolCallFormat::kGemma;
  constexpr ToolCallFormat kM3 = ToolCallFormat::kMiniMaxM3;
  const Case cases[] = {
      {kGemma, R"({"properties": {"a:b": {}}})", "'a:b'"},
      {kGemma, R"({"properties": {"a": {"properties": {" b": {}}}}})", "' b'"},
      {kGemma, R"({"properties": {"": {}}})", "the name ''"},
      {kGemma, R"({"properties": {"\"a": {}}})", "'\"a'"},
      {kGemma, R"({"properties": {"a": {"const": "<|tool_call>"}}})", "'a'"},
      {kGemma, R"({"properties": {"a": {"patternProperties": {"^x": {}}}}})", "patternProperties"},
      {kGemma,
       R"({"properties": {"a": {"properties": {"b": {}, "c": {}}, "maxProperties": 1}}})",
       "maxProperties"},
      {kM3, R"({"properties": {"tool_call": {}}})", "'tool_call'"},
      {kM3, R"({"properties": {"a>b": {}}})", "'a>b'"},
      {kM3, R"({"properties": {"a": {"properties": {"/b": {}}}}})", "'/b'"},
      {kM3,
       R"({"properties": {"a": {"type": ["array", "object"], "properties": {"item": {}}}}})",
       "'item'"},
      {kM3, R"({"properties": {"a": {"const": "x]<]minimax[>[y"}}})", "'a'"},
      {kM3, R"({"type": "object", "patternProperties": {"^x": {}}})", "patternProperties"},
      {kM3,
       R"({"anyOf": [{"properties": {"a": {}}}, {"additionalProperties": {"type": "null"}}]})",
       "alternatives"},
      {kM3, R"({"type": "string"})", "must be an object"},
      {kGemma, R"({"enum": [{"a": 1}]})", "must be an object"}};
  for (const auto& [format, schema, named] : cases) {
    const Status status = CallsPart({format}, ToolOf(Json::parse(schema)), true).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << schema;
    EXPECT_THAT(std::string(Message(status)), HasSubstr(named)) << schema;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("the tool 'f'")) << schema;
  }
}

// A call is read as one wherever it begins, so no other may begin in the text.
TEST_F(NestedCalls, StrictToolsLeaveNoOtherCallInTheText) {
  const Json parameters = Properties(R"({"n": {"type": "integer"}})");
  const auto gemma =
      Compiled(TextWithCallsPart({ToolCallFormat::kGemma}, ToolOf(parameters), false).value());
  EXPECT_TRUE(
      Accepts(*gemma, "I look. " + CallOf(ToolCallFormat::kGemma, "{n:7}") + " Done <|too."));
  for (const char* text : {"<|tool_call>\ncall:f{n", "<|tool_call>call: f", "<|tool_call>call:g"}) {
    EXPECT_FALSE(Accepts(*gemma, text, false)) << text;
  }
  const auto minimax =
      Compiled(TextWithCallsPart({ToolCallFormat::kMiniMaxM3}, ToolOf(parameters), false).value());
  EXPECT_TRUE(Accepts(*minimax,
                      "I look. " + CallOf(ToolCallFormat::kMiniMaxM3, "<n>7</n>") + " Done ]<]m."));
  for (const char* text : {"]<]minimax[>[<invoke", "]<]minimax[>[<tool_call>]", "]<]minimax[>[x"}) {
    EXPECT_FALSE(Accepts(*minimax, text, false)) << text;
  }
}

// The rules of calls do not change what is enforced of an answer in JSON beside them.
TEST_F(NestedCalls, AnAnswerBesideThemIsStrictJson) {
  const Json parameters = Properties(R"({"a": {"type": "string"}})");
  for (const ToolCallFormat format : kFormats) {
    const auto grammar = Compiled(OrPart(
        Json::array({JsonObjectPart(), CallsPart({format}, ToolOf(parameters), true).value()})));
    EXPECT_TRUE(Accepts(*grammar, R"({"a": "\ud83d\ude00)", false));
    EXPECT_FALSE(Accepts(*grammar, R"({"a": "\ud83dx)", false));
  }
}

TEST_F(NestedCalls, HostileSchemasAreRefusedSoon) {
  std::vector<Json> schemas;
  Json wide = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 8'000; ++i) wide["properties"][fmt::format("p{}", i)] = {{"type", "null"}};
  schemas.push_back(wide);
  Json deep = {{"type", "null"}};
  for (int i = 0; i < 25; ++i) {
    Json outer = {{"type", "object"}, {"properties", Json::object()}};
    for (int k = 0; k < 250; ++k) outer["properties"][fmt::format("p{}", k)] = {{"const", k}};
    outer["properties"]["deep"] = std::move(deep);
    deep = std::move(outer);
  }
  schemas.push_back(deep);
  Json chain = {{"type", "object"}, {"properties", {{"a", {{"$ref", "#/$defs/d0"}}}}}};
  for (int i = 0; i < 600; ++i) {
    chain["$defs"][fmt::format("d{}", i)] = {
        {"type", "array"}, {"items", {{"$ref", fmt::format("#/$defs/d{}", i + 1)}}}};
  }
  chain["$defs"]["d600"] = true;
  schemas.push_back(chain);
  schemas.push_back(Properties(R"({"a": {"type": "integer", "multipleOf": 9999}})"));
  Json values = Json::array();
  for (int i = 0; i < 15'000; ++i) values.push_back(fmt::format("value {}", i));
  schemas.push_back({{"type", "object"}, {"properties", {{"a", {{"enum", values}}}}}});
  for (const Json& schema : schemas) {
    for (const ToolCallFormat format : kFormats) {
      const std::vector<CallableTool> tools = ToolOf(schema);
      const std::clock_t begin = std::clock();
      const auto part = CallsPart({format}, tools, true);
      const Status status = part.ok() ? CheckGrammar(GrammarSpec(*part)) : part.status();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << schema.dump().substr(0, 80);
      EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 5);
    }
  }
}

}  // namespace
}  // namespace baton
