#include "common/grammar/call_grammar.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/chat_format/chat_parser.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/schema_check.h"
#include "common/grammar/tagged_calls.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "common/text/utf8.h"
#include "kernels/token_mask.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/unit/grammar/grammar_walk.h"

// Random calls in each format of calls, read by the parser of that format.
namespace baton {
namespace {

using Json = nlohmann::ordered_json;
using Kind = ChatEvent::Kind;

constexpr const char* kTools = R"([
  {"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string", "pattern": "^[A-Za-z]{1,12}$"}, "days": {"type": "integer"},
                   "hourly": {"type": "boolean"}, "units": {"enum": ["C", "F"]}},
    "required": ["city", "days"]}}},
  {"type": "function", "function": {"name": "now", "parameters": {"type": "object",
    "properties": {"zone": {"type": "string", "enum": ["UTC", "CET"]}, "exact": {"type": "boolean"}}}}}])";

std::vector<CallableTool> ToolsOf(const Json& tools, ToolCallFormat format) {
  const SchemaUse use = EndsAtMarkers(format) ? SchemaUse::kCall : SchemaUse::kJson;
  std::vector<CallableTool> out;
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    out.push_back({function["name"],
                   CheckedSchema(function["parameters"], GrammarLimits(), use).value(),
                   function["parameters"]});
  }
  return out;
}

struct ReadCall {
  std::string name;
  std::string arguments;
};

class CallGrammarTest : public ::testing::TestWithParam<ToolCallFormat> {
 protected:
  CallGrammarTest()
      : tools_(Json::parse(kTools)),
        tokenizer_(BytesAnd({"<tool_call>", "</tool_call>", "{\"", "\": ", "true", "<|channel|>"})),
        compiler_(CompilerFor(tokenizer_)) {}

  // The calls that the parser finds; all other text fails the test.
  std::vector<ReadCall> Read(const std::string& text) { return Read(text, tools_); }
  std::vector<ReadCall> Read(std::string text, const Json& tools) {
    if (GetParam() == ToolCallFormat::kHarmony) text += "<|call|>";  // the stop token
    ChatParser parser({.calls = GetParam(),
                       .reasoning = GetParam() == ToolCallFormat::kHarmony
                                        ? ReasoningFormat::kHarmony
                                        : ReasoningFormat::kNone,
                       .tools = std::make_shared<const ToolSchemas>(tools)});
    std::vector<ChatEvent> events = parser.Append(text);
    for (ChatEvent& event : parser.Finish()) events.push_back(std::move(event));
    std::vector<ReadCall> calls;
    for (const ChatEvent& event : events) {
      if (event.kind == Kind::kCallBegin) calls.push_back({event.text, ""});
      if (event.kind == Kind::kArguments) calls.back().arguments += event.text;
      EXPECT_NE(event.kind, Kind::kCallFailed) << text;
      EXPECT_NE(event.kind, Kind::kContent) << text;
    }
    return calls;
  }

  static void ExpectValid(const ReadCall& call) {
    SCOPED_TRACE(call.name + call.arguments);
    const Json arguments = Json::parse(call.arguments, nullptr, false);
    ASSERT_TRUE(arguments.is_object());
    if (call.name == "weather") {
      ASSERT_TRUE(arguments.contains("city") && arguments["city"].is_string());
      ASSERT_TRUE(arguments.contains("days") && arguments["days"].is_number());
      if (arguments.contains("units")) {
        EXPECT_TRUE(arguments["units"] == "C" || arguments["units"] == "F");
      }
      EXPECT_TRUE(arguments.value("hourly", Json(true)).is_boolean());
    } else {
      EXPECT_EQ(call.name, "now");
      EXPECT_TRUE(arguments.value("exact", Json(true)).is_boolean());
    }
  }

  const Json tools_;
  const Tokenizer tokenizer_;
  const std::unique_ptr<GrammarCompiler> compiler_;
  std::mt19937_64 random_{11};
};

TEST_P(CallGrammarTest, ForcedCallsAreReadByTheParser) {
  for (const bool one : {true, false}) {
    const auto part = CallsPart({GetParam()}, ToolsOf(tools_, GetParam()), one);
    ASSERT_TRUE(part.ok()) << part.status();
    ASSERT_EQ(CheckGrammar(GrammarSpec(*part)), OkStatus()) << GrammarSpec(*part);
    const auto grammar = CompileNow(*compiler_, GrammarSpec(*part));
    ASSERT_NE(grammar, nullptr);
    size_t most = 0;
    for (int i = 0; i < 40; ++i) {
      const auto text = RandomOutput(*grammar, tokenizer_, random_);
      if (!text.has_value()) continue;
      const std::vector<ReadCall> calls = Read(*text);
      ASSERT_FALSE(calls.empty()) << *text;
      for (const ReadCall& call : calls) ExpectValid(call);
      most = std::max(most, calls.size());
    }
    EXPECT_EQ(most > 1, !one && GetParam() != ToolCallFormat::kHarmony);
  }
}

TEST_P(CallGrammarTest, OneNamedToolIsCalled) {
  const std::vector<CallableTool> one = {ToolsOf(tools_, GetParam())[1]};
  const auto grammar =
      CompileNow(*compiler_, GrammarSpec(CallsPart({GetParam()}, one, true).value()));
  for (int i = 0; i < 10; ++i) {
    const auto text = RandomOutput(*grammar, tokenizer_, random_);
    ASSERT_TRUE(text.has_value());
    const std::vector<ReadCall> calls = Read(*text);
    ASSERT_EQ(calls.size(), 1u) << *text;
    EXPECT_EQ(calls[0].name, "now");
  }
}

TEST_P(CallGrammarTest, StrictToolsLeaveTextFree) {
  const auto part = TextWithCallsPart({GetParam()}, ToolsOf(tools_, GetParam()), true);
  ASSERT_TRUE(part.ok()) << part.status();
  const auto grammar = CompileNow(*compiler_, GrammarSpec(*part));
  const auto accepts = [&](const std::string& text) {
    const auto matcher = grammar->NewMatcher(tokenizer_.spec().eos);
    for (const char c : text) {
      if (!matcher->Accept(static_cast<uint8_t>(c))) return false;
    }
    return matcher->Accept(tokenizer_.spec().eos[0]);
  };
  const bool harmony = GetParam() == ToolCallFormat::kHarmony;
  const bool unmarked =
      GetParam() == ToolCallFormat::kLlamaJson || GetParam() == ToolCallFormat::kPythonic;
  const bool functionary = GetParam() == ToolCallFormat::kFunctionaryMessages;
  const std::string answer = harmony ? "<|channel|>final<|message|>" : functionary ? "all\n" : "";
  EXPECT_TRUE(accepts(answer + "Only text, a < b."));
  // A call that a grammar of calls makes may stand behind text.
  const auto calls = CompileNow(
      *compiler_, GrammarSpec(CallsPart({GetParam()}, ToolsOf(tools_, GetParam()), true).value()));
  const auto call = RandomOutput(*calls, tokenizer_, random_);
  ASSERT_TRUE(call.has_value());
  const std::string before =
      harmony       ? "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
      : functionary ? "all\nI look.>>>"
      : unmarked    ? ""
                    : "I look. ";
  EXPECT_TRUE(accepts(before + *call)) << *call;
}

// A call is what its grammar says also after the parser has turned its texts into JSON.
TEST_P(CallGrammarTest, ValuesKeepTheTypesOfTheirSchemas) {
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f",
    "parameters": {"type": "object", "required": ["a", "b", "c", "d", "e", "f", "g", "h"],
      "properties": {
        "a": {"anyOf": [{"type": "string", "pattern": "^[0-9]{2}$"}, {"type": "null"}]},
        "b": {"$ref": "#/$defs/text"},
        "c": {"enum": ["1", "true", null]},
        "d": {"const": "7"},
        "e": {"type": ["string", "integer"], "maxLength": 2},
        "f": {"oneOf": [{"type": "boolean"}, {"allOf": [{"type": "string", "minLength": 1}]}]},
        "g": {"type": "array", "items": {"type": "string", "maxLength": 2}, "maxItems": 2},
        "h": {"type": ["string", "null"], "format": "date"},
        "i": {"type": "array", "items": {"type": "string"}, "maxItems": 2}},
      "$defs": {"text": {"type": "string", "minLength": 1, "maxLength": 3}}}}}])");
  const auto part = CallsPart({GetParam()}, ToolsOf(tools, GetParam()), true);
  ASSERT_TRUE(part.ok()) << part.status();
  const auto grammar = CompileNow(*compiler_, GrammarSpec(*part));
  // Of a value that is no string: too long.
  const auto length = [](const Json& text) {
    return text.is_string() ? CountCodePoints(text.get<std::string>()) : size_t{1'000};
  };
  int ended = 0;
  for (int i = 0; i < 60; ++i) {
    const auto text = RandomOutput(*grammar, tokenizer_, random_);
    if (!text.has_value()) continue;
    ++ended;
    SCOPED_TRACE(*text);
    const std::vector<ReadCall> calls = Read(*text, tools);
    ASSERT_EQ(calls.size(), 1u);
    const Json call = Json::parse(calls[0].arguments, nullptr, false);
    ASSERT_TRUE(call.is_object()) << calls[0].arguments;
    SCOPED_TRACE(call.dump());
    ASSERT_TRUE(call["a"].is_null() || length(call["a"]) == 2) << call;
    ASSERT_TRUE(call["b"].is_string() && length(call["b"]) >= 1 && length(call["b"]) <= 3) << call;
    ASSERT_TRUE(call["c"] == "1" || call["c"] == "true" || call["c"].is_null()) << call;
    ASSERT_EQ(call["d"], "7");
    ASSERT_TRUE(call["e"].is_number() || length(call["e"]) <= 2) << call;
    ASSERT_TRUE(call["f"].is_boolean() || length(call["f"]) >= 1) << call;
    for (const Json& item : call["g"]) ASSERT_LE(length(item), 2u) << call;
    ASSERT_TRUE(call["h"].is_null() || length(call["h"]) == 10) << call;
  }
  EXPECT_GT(ended, 30);
}

TEST_P(CallGrammarTest, CallsAreBoundedInNumber) {
  if (GetParam() == ToolCallFormat::kHarmony) return;  // each call ends the output
  const Json tools = Json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
          "properties": {}, "additionalProperties": false}}}])");
  const auto grammar = CompileNow(
      *compiler_, GrammarSpec(CallsPart({GetParam()}, ToolsOf(tools, GetParam()), false).value()));
  // Goes on with calls as long as it may.
  const auto matcher = grammar->NewMatcher(tokenizer_.spec().eos);
  std::vector<uint32_t> mask(MaskWords(static_cast<int32_t>(tokenizer_.vocab_size())));
  std::string text;
  for (int step = 0; step < 5'000; ++step) {
    matcher->FillMask(mask);
    TokenId next = -1;
    for (TokenId token = 0; token < static_cast<TokenId>(tokenizer_.vocab_size()); ++token) {
      const bool end = token == tokenizer_.spec().eos[0];
      // The end of a section last: '/' and ']' begin it, and '｜tool▁calls▁end｜'.
      if (!end && Allows(mask, token)) next = token;
      const std::string_view piece = tokenizer_.piece(token);
      if (!end && Allows(mask, token) && (piece == "," || piece == "b" || piece == ";")) break;
    }
    if (next < 0) break;
    ASSERT_TRUE(matcher->Accept(next));
    text += tokenizer_.piece(next);
  }
  EXPECT_LE(Read(text, tools).size(), 16u) << text;
}

TEST_P(CallGrammarTest, NamesThatWouldBreakTheFormatAreRefused) {
  std::vector<CallableTool> tools = {ToolsOf(tools_, GetParam())[1]};
  tools[0].name = "a\"b";
  EXPECT_EQ(CallsPart({GetParam()}, tools, true).status().code(), StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(AllFormats,
                         CallGrammarTest,
                         ::testing::Values(ToolCallFormat::kHermes,
                                           ToolCallFormat::kLlamaJson,
                                           ToolCallFormat::kPythonic,
                                           ToolCallFormat::kMistral,
                                           ToolCallFormat::kQwenCoder,
                                           ToolCallFormat::kDeepSeek,
                                           ToolCallFormat::kDsml,
                                           ToolCallFormat::kGlm,
                                           ToolCallFormat::kKimi,
                                           ToolCallFormat::kHarmony,
                                           ToolCallFormat::kApriel,
                                           ToolCallFormat::kNemotron,
                                           ToolCallFormat::kGranite,
                                           ToolCallFormat::kCohere,
                                           ToolCallFormat::kLfm2,
                                           ToolCallFormat::kMiniMax,
                                           ToolCallFormat::kFunctionary,
                                           ToolCallFormat::kKimiK3,
                                           ToolCallFormat::kDeepSeekV4,
                                           ToolCallFormat::kFunctionaryMessages,
                                           ToolCallFormat::kGemma,
                                           ToolCallFormat::kMiniMaxM3));

// The recipient of a text cannot be a tool.
TEST(CallGrammar, FunctionaryCallsNoToolOfTheNameAll) {
  const std::vector<CallableTool> tools = {{"all", Json::parse(R"({"type": "object"})")}};
  const auto part = CallsPart({ToolCallFormat::kFunctionaryMessages}, tools, true);
  EXPECT_EQ(part.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(CallsPart({ToolCallFormat::kHermes}, tools, true).ok());
}

// A text may have the marker of a message, but no call of another tool.
TEST(CallGrammar, TextOfFunctionaryHasCallsBehindTheMarkerOnly) {
  const Tokenizer tokenizer = BytesAnd({});
  const auto compiler = CompilerFor(tokenizer);
  const std::vector<CallableTool> tools = {
      {"f", Json::parse(R"({"type": "object", "properties": {"a": {"type": "integer"}}})")}};
  const auto part = TextWithCallsPart({ToolCallFormat::kFunctionaryMessages}, tools, false);
  const auto grammar = CompileNow(*compiler, GrammarSpec(part.value()));
  const auto accepts = [&](std::string_view text) {
    const auto matcher = grammar->NewMatcher(tokenizer.spec().eos);
    return std::ranges::all_of(text, [&](char c) { return matcher->Accept(c); });
  };
  EXPECT_TRUE(accepts("all\n>>> print(1)\n>>>f\n{\"a\":1}>>>f\n{\"a\":2}"));
  EXPECT_TRUE(accepts("f\n{\"a\":1}>>>f\n{\"a\":2}"));
  EXPECT_FALSE(accepts("all\n>>>f\n{\"a\":\""));
  EXPECT_FALSE(accepts("g\n"));
}

// Calls in Python's syntax divide the schema of the arguments; references in its parts lead to the
// same schemas as before.
TEST(CallGrammar, ArgumentsInPythonSyntaxKeepTheirReferences) {
  const Tokenizer tokenizer = BytesAnd({});
  const auto compiler = CompilerFor(tokenizer);
  for (const char* parameters :
       {R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}, "self": {"$ref": "#"}},
            "required": ["a"], "$defs": {"b": {"enum": [1, 2]}}})",
        R"({"$ref": "#/definitions/o", "definitions": {"b": {"enum": [1, 2]},
            "o": {"type": "object", "properties": {"a": {"$ref": "#/definitions/b"},
                  "self": {"$ref": "#"}}, "required": ["a"]}}})"}) {
    const Json checked = CheckedSchema(Json::parse(parameters), GrammarLimits()).value();
    const auto part = CallsPart({ToolCallFormat::kPythonic}, {{"f", checked}}, true);
    const auto grammar = CompileNow(*compiler, GrammarSpec(part.value()));
    const auto accepts = [&](std::string_view text) {
      const auto matcher = grammar->NewMatcher(tokenizer.spec().eos);
      return std::ranges::all_of(text, [&](char c) { return matcher->Accept(c); });
    };
    EXPECT_TRUE(accepts("[f(a=2)]"));
    EXPECT_FALSE(accepts("[f(a=3")) << "the definition of a";
    EXPECT_FALSE(accepts("[f()"));
    EXPECT_TRUE(accepts(R"([f(a=1, self={"a":1,"self":{"a":2}})])"));
    EXPECT_FALSE(accepts(R"([f(a=1, self={"a":3)"));
    EXPECT_FALSE(accepts(R"([f(a=1, self=1)")) << "self is the whole schema";
  }
}

// Each optional argument is written once for each argument that may stand before it.
TEST(CallGrammar, BoundsWhatIsWrittenOutForPythonSyntax) {
  const auto part = [](int count) {
    Json schema = {{"type", "object"}, {"properties", Json::object()}};
    for (int i = 0; i < count; ++i) {
      schema["properties"][fmt::format("p{}", i)] = {{"type", "string"}, {"maxLength", 9}};
    }
    const Json checked = CheckedSchema(schema, GrammarLimits()).value();
    return CallsPart({ToolCallFormat::kPythonic}, {{"f", checked}}, true);
  };
  EXPECT_TRUE(part(60).ok()) << part(60).status();
  EXPECT_EQ(part(600).status().code(), StatusCode::kInvalidArgument);
}

// Formats that write each argument on its own divide the schema of the arguments.
TEST(CallGrammar, ParametersThatCannotBeDividedAreRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "string"})", "must be an object"},
      {R"({"enum": [{"a": 1}]})", "must be an object"},
      {R"({"type": "object", "properties": {"a b": {}}})", "have a name"},
      {R"({"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 1})",
       "have minProperties"},
      {R"({"type": "object", "patternProperties": {"a": {}}})", "have patternProperties"}};
  for (const auto format :
       {ToolCallFormat::kGlm, ToolCallFormat::kQwenCoder, ToolCallFormat::kPythonic}) {
    for (const auto& [schema, named] : cases) {
      const Json checked =
          CheckedSchema(Json::parse(schema), GrammarLimits(), SchemaUse::kCall).value();
      const Status status = CallsPart({format}, {{"f", checked}}, true).status();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << schema;
      EXPECT_THAT(std::string(Message(status)), testing::HasSubstr(named)) << schema;
    }
  }
}

// Tells whether a text begins a call of a tool with two strings. The second one has a bound.
std::function<bool(std::string_view)> CallsOfTwoStrings(ToolCallFormat format) {
  const Tokenizer tokenizer = BytesAnd({});
  const auto compiler = CompilerFor(tokenizer);
  const Json checked = CheckedSchema(Json::parse(R"({"type": "object", "properties": {
      "a": {"type": "string"}, "b": {"type": "string", "maxLength": 30}}, "required": ["a", "b"]})"),
                                     GrammarLimits(),
                                     SchemaUse::kCall)
                           .value();
  const auto part = CallsPart({format}, {{"f", checked}}, true);
  return [tokenizer,
          grammar = CompileNow(*compiler, GrammarSpec(part.value()))](std::string_view text) {
    const auto matcher = grammar->NewMatcher(tokenizer.spec().eos);
    return std::ranges::all_of(text, [&](char c) { return matcher->Accept(c); });
  };
}

TEST(CallGrammar, ATextBetweenTagsHasNoTag) {
  const auto accepts = CallsOfTwoStrings(ToolCallFormat::kGlm);
  const std::string begin = "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>";
  EXPECT_TRUE(accepts(begin + "if a < b: </div> 1\n</arg_value>\n<arg_key>b"));
  EXPECT_FALSE(accepts(begin + "</tool_call>"));
  EXPECT_FALSE(accepts(begin + "<arg_key>"));
  EXPECT_FALSE(accepts(begin + "\t1</arg_value>\t")) << "white space that the template lacks";
  const std::string second = begin + "</arg_value>\n<arg_key>b</arg_key>\n<arg_value>";
  EXPECT_TRUE(accepts(second + "\"1\"\n\\</arg_value>\n</tool_call>"));
  EXPECT_FALSE(accepts(second + "a<b"));
}

// The reader of these messages ends a call at a marker, wherever it stands.
TEST(CallGrammar, AStringOfACallInAMessageHasNoMarker) {
  const auto accepts = CallsOfTwoStrings(ToolCallFormat::kHarmony);
  const std::string begin =
      "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": \"";
  EXPECT_TRUE(accepts(begin + "a < b, <p>\", \"b\": \"\\u003c|\"}"));
  EXPECT_FALSE(accepts(begin + "<|"));
  EXPECT_FALSE(accepts(begin + "\", \"b\": \"<"));
}

TEST(CallGrammar, AModelWithoutAFormatCannotBeForced) {
  EXPECT_EQ(CallsPart({ToolCallFormat::kNone}, {}, true).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
