#include "common/grammar/call_grammar.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/chat_format/chat_parser.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/schema_check.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/unit/grammar/grammar_walk.h"

// Random calls in each format of calls, read by the parser of that format.
namespace baton {
namespace {

using Json = nlohmann::ordered_json;
using Kind = ChatEvent::Kind;

constexpr const char* kTools = R"([
  {"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string", "pattern": "[A-Za-z]{1,12}"}, "days": {"type": "integer"},
                   "hourly": {"type": "boolean"}, "units": {"enum": ["C", "F"]}},
    "required": ["city", "days"]}}},
  {"type": "function", "function": {"name": "now", "parameters": {"type": "object",
    "properties": {"zone": {"type": "string", "enum": ["UTC", "CET"]}, "exact": {"type": "boolean"}}}}}])";

std::vector<CallableTool> ToolsOf(const Json& tools) {
  std::vector<CallableTool> out;
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    out.push_back(
        {function["name"], CheckedSchema(function["parameters"], GrammarLimits()).value()});
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
  std::vector<ReadCall> Read(std::string text) {
    if (GetParam() == ToolCallFormat::kHarmony) text += "<|call|>";  // the stop token
    ChatParser parser({.calls = GetParam(),
                       .reasoning = GetParam() == ToolCallFormat::kHarmony
                                        ? ReasoningFormat::kHarmony
                                        : ReasoningFormat::kNone,
                       .tools = std::make_shared<const ToolSchemas>(tools_)});
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
      ASSERT_TRUE(arguments.contains("days") && arguments["days"].is_number_integer());
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
    const auto part = CallsPart(GetParam(), ToolsOf(tools_), one);
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
  const std::vector<CallableTool> one = {ToolsOf(tools_)[1]};
  const auto grammar =
      CompileNow(*compiler_, GrammarSpec(CallsPart(GetParam(), one, true).value()));
  for (int i = 0; i < 10; ++i) {
    const auto text = RandomOutput(*grammar, tokenizer_, random_);
    ASSERT_TRUE(text.has_value());
    const std::vector<ReadCall> calls = Read(*text);
    ASSERT_EQ(calls.size(), 1u) << *text;
    EXPECT_EQ(calls[0].name, "now");
  }
}

TEST_P(CallGrammarTest, StrictToolsLeaveTextFree) {
  const auto part = TextWithCallsPart(GetParam(), ToolsOf(tools_), true);
  const bool unmarked = GetParam() == ToolCallFormat::kLlamaJson ||
                        GetParam() == ToolCallFormat::kPythonic ||
                        GetParam() == ToolCallFormat::kHarmony;
  ASSERT_EQ(part.ok(), !unmarked) << part.status();
  if (unmarked) return;
  const auto grammar = CompileNow(*compiler_, GrammarSpec(*part));
  const auto accepts = [&](const std::string& text) {
    const auto matcher = grammar->NewMatcher(tokenizer_.spec().eos);
    for (const char c : text) {
      if (!matcher->Accept(static_cast<uint8_t>(c))) return false;
    }
    return matcher->Accept(tokenizer_.spec().eos[0]);
  };
  EXPECT_TRUE(accepts("Only text, a < b."));
  // A call that a grammar of calls makes may stand behind text.
  const auto calls =
      CompileNow(*compiler_, GrammarSpec(CallsPart(GetParam(), ToolsOf(tools_), true).value()));
  const auto call = RandomOutput(*calls, tokenizer_, random_);
  ASSERT_TRUE(call.has_value());
  EXPECT_TRUE(accepts("I look. " + *call)) << *call;
}

TEST_P(CallGrammarTest, NamesThatWouldBreakTheFormatAreRefused) {
  std::vector<CallableTool> tools = {ToolsOf(tools_)[1]};
  tools[0].name = "a\"b";
  EXPECT_EQ(CallsPart(GetParam(), tools, true).status().code(), StatusCode::kInvalidArgument);
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
                                           ToolCallFormat::kHarmony));

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
    const auto part = CallsPart(ToolCallFormat::kPythonic, {{"f", checked}}, true);
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
    return CallsPart(ToolCallFormat::kPythonic, {{"f", checked}}, true);
  };
  EXPECT_TRUE(part(60).ok());
  EXPECT_EQ(part(600).status().code(), StatusCode::kInvalidArgument);
}

TEST(CallGrammar, AModelWithoutAFormatCannotBeForced) {
  EXPECT_EQ(CallsPart(ToolCallFormat::kNone, {}, true).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
