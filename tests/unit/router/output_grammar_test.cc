#include "router/text/output_grammar.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "router/api/messages_request.h"
#include "router/api/openai_request.h"
#include "router/api/responses_request.h"
#include "router/request_error.h"
#include "tests/support/byte_tokenizer.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

constexpr const char* kTool =
    R"({"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"x": {"type": "integer"}}}}})";

// `special`: the markers of these formats are special tokens.
ModelText Model(const ChatFormats& formats, bool special = false) {
  std::vector<std::string_view> markers;
  for (const auto& more : {TokensOf(formats.calls), TokensOf(formats.reasoning)}) {
    if (special) markers.insert(markers.end(), more.begin(), more.end());
  }
  Tokenizer tokenizer = BytesAnd({}, markers);
  const auto vocabulary = static_cast<int32_t>(tokenizer.vocab_size());
  return ModelText("m", std::move(tokenizer), {}, {0}, 1000, vocabulary, formats);
}

// Schemas for a grammar that is too large.
std::string Nulls(int count) {
  std::string text = "{}";
  for (int i = 1; i < count; ++i) text += R"(, {"type": "null"})";
  return text;
}

// A grammar that a router converts easily, and that a worker takes too long to optimise.
std::string Inlined() {
  std::string text = "root ::= r";
  for (int i = 0; i < 400; ++i) text += fmt::format(" | r \\\"{}\\\"", i);
  text += "\\nr ::= \\\"x\\\"";
  for (int i = 0; i < 400; ++i) text += fmt::format(" | \\\"y{}\\\"", i);
  return text;
}

struct Made {
  Status status;
  std::string spec;
};

Made Grammar(const StatusOr<ApiRequest>& request,
             const ChatFormats& formats = {.calls = ToolCallFormat::kHermes},
             const std::string& prompt = "",
             bool special = false) {
  if (!request.ok()) return {request.status(), ""};
  GenerationRequest generation = request->generation;
  generation.input = request->inputs.at(0);
  const std::vector<TokenId> tokens(prompt.begin(), prompt.end());
  const auto spec = OutputGrammar(generation, Model(formats, special), tokens);
  return {spec.status(), spec.ok() ? *spec : ""};
}

Made Chat(const std::string& members,
          const ChatFormats& formats = {.calls = ToolCallFormat::kHermes},
          const std::string& prompt = "",
          bool special = false) {
  return Grammar(
      ParseOpenAiRequest(OpenAiKind::kChat,
                         R"({"messages": [{"role": "user", "content": "x"}], )" + members + "}"),
      formats,
      prompt,
      special);
}

TEST(OutputGrammar, IsMadeOfEveryMemberThatStatesOne) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("response_format": {"type": "json_object"})", "json_schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true,
          "schema": {"type": "integer"}}})",
       R"("type":"integer")"},
      {R"("structured_outputs": {"json": {"type": "integer"}})", R"("type":"integer")"},
      {R"("structured_outputs": {"json": "{\"type\": \"null\"}"})", R"("type":"null")"},
      {R"("structured_outputs": {"regex": "a+"})", R"("pattern":"a+")"},
      {R"("structured_outputs": {"choice": ["a", "b"]})", R"("value":"b")"},
      {R"("structured_outputs": {"grammar": "root ::= \"q\""})", "root ::="},
      {R"("structured_outputs": {"json_object": true})", "json_schema"},
      {R"("guided_json": {"type": "integer"})", R"("type":"integer")"},
      {R"("guided_regex": "a+")", R"("pattern":"a+")"},
      {R"("guided_choice": ["a", "b"])", R"("value":"b")"},
      {R"("guided_grammar": "root ::= \"q\"")", "root ::="}};
  for (const auto& [members, part] : cases) {
    const Made made = Chat(members);
    EXPECT_EQ(made.status, OkStatus()) << members;
    EXPECT_THAT(made.spec, HasSubstr(part)) << members;
  }
  EXPECT_EQ(Chat(R"("response_format": {"type": "text"})").spec, "");
  EXPECT_EQ(Chat(R"("temperature": 0)").spec, "");
}

TEST(OutputGrammar, TheOtherApisStateOneAsWell) {
  const auto responses = ReadResponsesRequest(Json::parse(
      R"({"input": "x", "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "integer"}}}})"));
  EXPECT_THAT(Grammar(responses).spec, HasSubstr(R"("type":"integer")"));
  for (const char* member :
       {R"("output_format": {"type": "json_schema", "schema": {"type": "integer"}})",
        R"("output_config": {"format": {"type": "json_schema", "schema": {"type": "integer"}}})"}) {
    const auto messages = ReadMessagesRequest(
        MessagesKind::kCreate,
        Json::parse(
            std::string(R"({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}], )") +
            member + "}"));
    EXPECT_THAT(Grammar(messages).spec, HasSubstr(R"("type":"integer")")) << member;
  }
  const auto completion =
      ParseOpenAiRequest(OpenAiKind::kCompletion, R"({"prompt": "x", "guided_choice": ["yes"]})");
  EXPECT_THAT(Grammar(completion).spec, HasSubstr("yes"));
}

TEST(OutputGrammar, ToolChoiceForcesCallsInEveryApi) {
  const std::string tools = std::string(R"("tools": [)") + kTool +
                            R"(, {"type": "function", "function": {"name": "g"}}])";
  const Made any = Chat(tools + R"(, "tool_choice": "required")");
  EXPECT_EQ(any.status, OkStatus());
  EXPECT_THAT(any.spec, HasSubstr(R"(\"f\")"));
  EXPECT_THAT(any.spec, HasSubstr(R"(\"g\")"));
  const Made named =
      Chat(tools + R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})");
  EXPECT_EQ(named.status, OkStatus());
  EXPECT_THAT(named.spec, Not(HasSubstr(R"(\"f\")")));
  EXPECT_EQ(Chat(tools + R"(, "tool_choice": "auto")").spec, "");
  EXPECT_EQ(Chat(tools + R"(, "tool_choice": "none")").spec, "");
  const auto responses = ReadResponsesRequest(Json::parse(
      R"({"input": "x", "tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "function", "name": "f"}})"));
  EXPECT_THAT(Grammar(responses).spec, HasSubstr(R"(\"f\")"));
  for (const char* choice : {R"({"type": "any"})", R"({"type": "tool", "name": "f"})"}) {
    const auto messages = ReadMessagesRequest(
        MessagesKind::kCreate,
        Json::parse(fmt::format(
            R"({{"max_tokens": 5, "messages": [{{"role": "user", "content": "x"}}],
                "tools": [{{"name": "f", "input_schema": {{"type": "object"}}}}], "tool_choice": {}}})",
            choice)));
    EXPECT_THAT(Grammar(messages).spec, HasSubstr(R"(\"f\")")) << choice;
  }
}

TEST(OutputGrammar, OnlyAllowedToolsAreForcedAndStrict) {
  // A chat that may call f, but not g.
  const auto with = [](const char* mode, bool f_is_strict, bool g_is_strict) {
    return Chat(fmt::format(R"("tools": [
            {{"type": "function", "function": {{"name": "f", "strict": {}}}}},
            {{"type": "function", "function": {{"name": "g", "strict": {}}}}}],
        "tool_choice": {{"type": "allowed_tools", "allowed_tools": {{"mode": "{}", "tools": [
            {{"type": "function", "function": {{"name": "f"}}}}]}}}})",
                            f_is_strict,
                            g_is_strict,
                            mode));
  };
  const Made forced = with("required", false, true);
  EXPECT_EQ(forced.status, OkStatus());
  EXPECT_THAT(forced.spec, HasSubstr(R"(\"f\")"));
  EXPECT_THAT(forced.spec, Not(HasSubstr(R"(\"g\")")));
  EXPECT_THAT(forced.spec, HasSubstr("repeat"));
  // A strict tool that may not be called constrains nothing.
  EXPECT_EQ(with("auto", false, true).spec, "");
  const Made strict = with("auto", true, false);
  EXPECT_EQ(strict.status, OkStatus());
  EXPECT_THAT(strict.spec, HasSubstr("triggered_tags"));
  EXPECT_THAT(strict.spec, Not(HasSubstr(R"(\"g\")")));
}

TEST(OutputGrammar, StrictToolsAreEnforcedWithoutForce) {
  const std::string strict =
      R"("tools": [{"type": "function", "function": {"name": "f", "strict": true, "parameters": {"type": "object",
          "properties": {"x": {"type": "integer"}}, "additionalProperties": false}}}])";
  EXPECT_THAT(Chat(strict).spec, HasSubstr("triggered_tags"));
  for (int format = 1; format <= static_cast<int>(kLastToolCallFormat); ++format) {
    const ChatFormats formats = {.calls = static_cast<ToolCallFormat>(format)};
    const Made made = Chat(strict, formats);
    EXPECT_EQ(made.status, OkStatus()) << format;
    EXPECT_NE(made.spec, "") << format;
  }
  EXPECT_THAT(Chat(strict, {.calls = ToolCallFormat::kFunctionaryMessages}).spec,
              HasSubstr("triggered_tags"));
}

// U+FDD0 before a marker says that it is a special token.
TEST(OutputGrammar, MarkersThatAreSpecialTokensAreSigned) {
  const std::string tools = std::string(R"("tools": [)") + kTool + "]";
  const std::string forced = tools + R"(, "tool_choice": "required")";
  const std::string strict =
      R"("tools": [{"type": "function", "function": {"name": "f", "strict": true}}])";
  const ChatFormats harmony = {.calls = ToolCallFormat::kHarmony,
                               .reasoning = ReasoningFormat::kHarmony};
  const ChatFormats think = {.calls = ToolCallFormat::kHermes,
                             .reasoning = ReasoningFormat::kThink};
  const std::string sign = "\uFDD0";
  for (const std::string& members : {forced, strict}) {
    const std::string of_harmony = Chat(members, harmony, "", true).spec;
    EXPECT_THAT(of_harmony, HasSubstr(sign + "<|channel|>commentary to=functions.f"));
    EXPECT_THAT(of_harmony, HasSubstr(sign + "<|channel|>analysis" + sign + "<|message|>"));
    const std::string of_hermes = Chat(members, think, "<think>", true).spec;
    EXPECT_THAT(of_hermes, HasSubstr(sign + "<tool_call>"));
    EXPECT_THAT(of_hermes, HasSubstr(sign + "</think>"));
    EXPECT_THAT(Chat(members, think, "<think>").spec, Not(HasSubstr(sign)));
    EXPECT_THAT(Chat(members, harmony).spec, Not(HasSubstr(sign)));
  }
  EXPECT_THAT(Chat(R"("guided_regex": "a+")", harmony, "", true).spec,
              HasSubstr(sign + "<|channel|>final" + sign + "<|message|>"));
  // Formats that are written in EBNF.
  EXPECT_THAT(Chat(forced, {.calls = ToolCallFormat::kGemma}, "", true).spec,
              HasSubstr(sign + "<tool_call|>"));
  EXPECT_THAT(Chat(forced, {.calls = ToolCallFormat::kMiniMaxM3}, "", true).spec,
              HasSubstr(sign + "]<]minimax[>[<x>"));
}

// What the parser takes a text for depends on the schema as the client states it.
TEST(OutputGrammar, CallsHaveTheTypesThatTheClientStates) {
  const auto with = [](const char* schema, ToolCallFormat format) {
    return Chat(fmt::format(R"("tools": [{{"type": "function", "function": {{"name": "f",
        "parameters": {{"type": "object", "properties": {{"x": {}}}}}}}}}],
        "tool_choice": "required")",
                            schema),
                {.calls = format});
  };
  constexpr ToolCallFormat kM3 = ToolCallFormat::kMiniMaxM3;
  // The parser would take the text 7 for an integer, which the schema rules out.
  const char* const either =
      R"({"type": ["string", "integer"], "enum": ["7", 1], "not": {"const": 1}})";
  EXPECT_THAT(with(either, kM3).spec, HasSubstr(R"(\\\"7\\\")"));
  EXPECT_THAT(with(R"({"const": "7"})", kM3).spec, Not(HasSubstr(R"(\\\"7\\\")")));
  for (const ToolCallFormat format : {ToolCallFormat::kGemma, kM3}) {
    const Made refused = with(R"({"maxProperties": 1, "properties": {"a": {}, "b": {}}})", format);
    EXPECT_EQ(refused.status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(MemberOf(refused.status), "tool_choice");
    EXPECT_THAT(std::string(Message(refused.status)), HasSubstr("the tool 'f' have minProperties"));
  }
}

// Several calls of one tool that was named are not what was asked for.
TEST(OutputGrammar, ANamedToolIsCalledOnce) {
  const std::string tools = std::string(R"("tools": [)") + kTool + "], ";
  const char* named = R"("tool_choice": {"type": "function", "function": {"name": "f"}})";
  EXPECT_THAT(Chat(tools + named).spec, Not(HasSubstr("repeat")));
  EXPECT_THAT(Chat(tools + named + R"(, "parallel_tool_calls": true)").spec,
              Not(HasSubstr("repeat")));
  EXPECT_THAT(Chat(tools + R"("tool_choice": "required")").spec, HasSubstr("repeat"));
  EXPECT_THAT(Chat(tools + R"("tool_choice": "required", "parallel_tool_calls": false)").spec,
              Not(HasSubstr("repeat")));
}

// Agents offer tools and state the format of their last answer in the same request.
TEST(OutputGrammar, AnAnswerInAFormatMayBeACallInstead) {
  const std::string answer = R"("guided_regex": "a+", )";
  const std::string tool = std::string(R"("tools": [)") + kTool + "]";
  const std::string strict =
      R"("tools": [{"type": "function", "function": {"name": "f", "strict": true}}])";
  for (const std::string& tools : {tool, strict}) {
    const Made either = Chat(answer + tools);
    EXPECT_EQ(either.status, OkStatus()) << tools;
    EXPECT_THAT(either.spec, HasSubstr(R"("type":"or")")) << tools;
    EXPECT_THAT(either.spec, HasSubstr(R"("pattern":"a+")")) << tools;
    EXPECT_THAT(either.spec, HasSubstr(R"({\"name\": \"f\")")) << tools;
    EXPECT_THAT(either.spec, Not(HasSubstr("any_text"))) << tools;
  }
  const ChatFormats harmony = {.calls = ToolCallFormat::kHarmony,
                               .reasoning = ReasoningFormat::kHarmony};
  EXPECT_THAT(Chat(answer + tool, harmony).spec, HasSubstr("<|channel|>final<|message|>"));
  EXPECT_THAT(Chat(answer + tool, harmony).spec, HasSubstr("to=functions.f"));
  EXPECT_EQ(Chat(answer + tool + R"(, "tool_choice": "none")").spec,
            Chat(R"("guided_regex": "a+")").spec);
}

TEST(OutputGrammar, ForcedCallsLeaveNoRoomForAnAnswer) {
  const std::string tool = std::string(R"("tools": [)") + kTool + "], ";
  for (const char* choice : {R"("tool_choice": "required")",
                             R"("tool_choice": {"type": "function", "function": {"name": "f"}})"}) {
    const Made made = Chat(tool + R"("guided_regex": "a+", )" + choice);
    EXPECT_EQ(made.status, OkStatus()) << choice;
    EXPECT_EQ(made.spec, Chat(tool + choice).spec) << choice;
  }
}

TEST(OutputGrammar, RefusesByName) {
  const std::string tool = std::string(R"("tools": [)") + kTool + "]";
  const std::pair<std::string, const char*> cases[] = {
      {R"("response_format": {"type": "grammar"})", "response_format.type"},
      {R"("response_format": "json")", "response_format"},
      {R"("response_format": {"type": "json_schema"})", "response_format.json_schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n"}})",
       "response_format.json_schema.schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}})",
       "response_format.json_schema.schema"},
      {R"("structured_outputs": {"lark": "x"})", "structured_outputs.lark"},
      {R"("structured_outputs": {"regex": "(("})", "structured_outputs.regex"},
      {R"("structured_outputs": {"regex": "a", "choice": ["b"]})", "structured_outputs.choice"},
      {R"("guided_choice": [])", "guided_choice"},
      {R"("guided_choice": [1])", "guided_choice"},
      {R"("guided_regex": 1)", "guided_regex"},
      {R"("guided_grammar": "root = x")", "guided_grammar"},
      {R"("guided_json": "{")", "guided_json"},
      {R"("guided_json": {"$ref": "#/default", "default": {"type": "null"}})", "guided_json"},
      {R"("guided_json": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
       "guided_json"},
      {R"("guided_grammar": "root ::= root \"a\"")", "guided_grammar"},
      {R"("guided_grammar": ")" + Inlined() + "\"", "guided_grammar"},
      {R"("guided_regex": "a", "ignore_eos": true)", "ignore_eos"},
      {R"("guided_regex": "a", "min_tokens": 3)", "min_tokens"},
      {R"("tool_choice": "required")", "tool_choice"},
      {R"("tool_choice": "always")", "tool_choice"},
      {tool + R"(, "tool_choice": {"type": "function", "function": {"name": "h"}})", "tool_choice"},
      {tool + R"(, "tool_choice": {"type": "custom"})", "tool_choice.type"},
      {tool + R"(, "guided_regex": "((")", "guided_regex"},
      {R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"not": {}}}}],
          "tool_choice": "required")",
       "tools[0].parameters"},
      {R"("guided_json": {"type": "array", "prefixItems": [)" + Nulls(6'000) + "]}",
       "guided_json"}};
  for (const auto& [members, member] : cases) {
    const Made made = Chat(members);
    EXPECT_EQ(made.status.code(), StatusCode::kInvalidArgument) << members;
    EXPECT_EQ(MemberOf(made.status), member) << members << made.status;
  }
}

TEST(OutputGrammar, TheModelMayReasonBefore) {
  const char* const schema = R"("guided_regex": "abc")";
  const ChatFormats think = {.calls = ToolCallFormat::kHermes,
                             .reasoning = ReasoningFormat::kThink};
  const Made before = Chat(schema, think, "<think>\n");
  EXPECT_THAT(before.spec, HasSubstr(R"("begin":"")"));
  EXPECT_THAT(before.spec, HasSubstr("</think>"));
  EXPECT_THAT(Chat(schema, think, "x").spec, HasSubstr("optional"));
  EXPECT_THAT(Chat(schema, {}, "x").spec, Not(HasSubstr("think")));
  // A prompt that ends with the closing marker switches reasoning off.
  const Made off = Chat(schema, think, "<think>\n\n</think>\n\n");
  EXPECT_EQ(off.spec, Chat(schema, {.calls = ToolCallFormat::kHermes}, "").spec);
  const std::string tool = std::string(R"("tools": [)") + kTool + R"(], "tool_choice": "required")";
  EXPECT_EQ(Chat(tool, think, "</think>").spec,
            Chat(tool, {.calls = ToolCallFormat::kHermes}).spec);
  // What the model continues may have begun the reasoning, or the answer.
  const std::string on = std::string(schema) + R"(, "add_generation_prompt": false,
      "continue_final_message": true, "messages": [{"role": "user", "content": "x"},
      {"role": "assistant", "content": ")";
  EXPECT_EQ(Chat(on + R"(<think>Hm"}])", think, "<think>Hm").spec, before.spec);
  EXPECT_EQ(Chat(on + R"(Yes"}])", think, "Yes").spec, off.spec);
  // A template that only mentions the markers is not of a model that begins to reason.
  ChatFormats mentions = think;
  mentions.may_begin_reasoning = false;
  EXPECT_THAT(Chat(schema, mentions, "x").spec, Not(HasSubstr("think")));
  EXPECT_THAT(Chat(schema, mentions, "<think>").spec, HasSubstr("</think>"));
  const ChatFormats harmony = {.calls = ToolCallFormat::kHarmony,
                               .reasoning = ReasoningFormat::kHarmony};
  EXPECT_THAT(Chat(schema, harmony, "x").spec, HasSubstr("<|channel|>final<|message|>"));
}

}  // namespace
}  // namespace baton::router
