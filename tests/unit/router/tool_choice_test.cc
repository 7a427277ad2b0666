// tool_choice of the kind allowed_tools: all tools are shown to the model, and some may be called.
#include <map>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "router/api/openai_request.h"
#include "router/api/responses_request.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Choice = ChatOutput::Choice;
using Json = nlohmann::ordered_json;

// A chat with the tools f, g and h.
StatusOr<ApiRequest> Chat(const std::string& choice) {
  return ParseOpenAiRequest(OpenAiKind::kChat,
                            R"({"messages": [{"role": "user", "content": "x"}], "tools": [
                                {"type": "function", "function": {"name": "f"}},
                                {"type": "function", "function": {"name": "g"}},
                                {"type": "function", "function": {"name": "h"}}],
                                "tool_choice": )" +
                                choice + "}");
}

StatusOr<ApiRequest> ChatThatAllows(const std::string& members) {
  return Chat(R"({"type": "allowed_tools", "allowed_tools": {)" + members + "}}");
}

// The same as a response.
StatusOr<ApiRequest> Response(const std::string& choice) {
  return ReadResponsesRequest(Json::parse(R"({"input": "x", "tools": [
      {"type": "function", "name": "f"}, {"type": "function", "name": "g"},
      {"type": "function", "name": "h"}], "tool_choice": )" +
                                          choice + "}"));
}

TEST(AllowedTools, AreSomeOfTheToolsThatTheModelSees) {
  const char* const of_chat = R"("tools": [{"type": "function", "function": {"name": "h"}},
                                           {"type": "function", "function": {"name": "f"}}])";
  const char* const of_response = R"("tools": [{"type": "function", "name": "h"},
                                               {"type": "function", "name": "f"}])";
  for (const auto& [mode, choice] :
       {std::pair("auto", Choice::kAuto), std::pair("required", Choice::kRequired)}) {
    const std::string member = fmt::format(R"("mode": "{}", )", mode);
    for (const StatusOr<ApiRequest>& request :
         {ChatThatAllows(member + of_chat),
          Response(R"({"type": "allowed_tools", )" + member + of_response + "}")}) {
      ASSERT_TRUE(request.ok()) << request.status();
      const ChatOutput& output = *request->generation.chat_output;
      EXPECT_TRUE(output.calls);
      EXPECT_EQ(output.choice, choice);
      EXPECT_THAT(output.allowed_tools, ElementsAre("f", "h"));
      EXPECT_TRUE(output.MayCall("f"));
      EXPECT_FALSE(output.MayCall("g"));
      const std::string& shown = std::get<ChatInput>(request->inputs[0]).tools_json;
      EXPECT_THAT(shown, HasSubstr("\"g\""));
      EXPECT_EQ(shown, std::get<ChatInput>(Chat("\"auto\"")->inputs[0]).tools_json);
    }
  }
}

TEST(AllowedTools, AreAllUnlessTheChoiceNamesSome) {
  for (const char* choice : {"\"auto\"", "\"required\""}) {
    const ChatOutput output = *Chat(choice)->generation.chat_output;
    EXPECT_THAT(output.allowed_tools, IsEmpty());
    EXPECT_TRUE(output.MayCall("g"));
  }
  const auto named = Chat(R"({"type": "function", "function": {"name": "g"}})");
  EXPECT_EQ(named->generation.chat_output->choice, Choice::kNamed);
  EXPECT_THAT(named->generation.chat_output->allowed_tools, ElementsAre("g"));
}

TEST(AllowedTools, AreRefusedByName) {
  const auto function = [](const std::string& name) {
    return fmt::format(R"({{"type": "function", "function": {{"name": "{}"}}}})", name);
  };
  const std::string f = function("f");
  const std::pair<std::string, const char*> cases[] = {
      {R"("tools": [)" + f + "]", "mode"},
      {R"("mode": "none", "tools": [)" + f + "]", "mode"},
      {R"("mode": "auto")", "tools"},
      {R"("mode": "auto", "tools": {})", "tools"},
      {R"("mode": "auto", "tools": [])", "tools"},
      {R"("mode": "auto", "tools": ["f"])", "tools[0]"},
      {R"("mode": "auto", "tools": [{"type": "mcp", "server_label": "s"}])", "tools[0].type"},
      {R"("mode": "auto", "tools": [{"type": "function"}])", "tools[0].function"},
      {R"("mode": "auto", "tools": [{"type": "function", "function": {}}])",
       "tools[0].function.name"},
      {R"("mode": "auto", "tools": [{"type": "function", "function": {"name": 1}}])",
       "tools[0].function.name"},
      {R"("mode": "auto", "tools": [)" + f + ", " + function("other") + "]", "tools[1]"},
      {R"("mode": "required", "tools": [)" + f + ", " + function("g") + ", " + f + "]",
       "tools[2]"}};
  for (const auto& [members, member] : cases) {
    const Status status = ChatThatAllows(members).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << members;
    EXPECT_EQ(MemberOf(status), std::string("tool_choice.allowed_tools.") + member) << members;
  }
  EXPECT_EQ(MemberOf(Chat(R"({"type": "allowed_tools"})").status()), "tool_choice.allowed_tools");
  EXPECT_EQ(MemberOf(Response(R"({"type": "allowed_tools", "mode": "auto", "tools": [
                                  {"type": "function", "name": "x"}]})")
                         .status()),
            "tool_choice.tools[0]");
  EXPECT_EQ(MemberOf(Response(R"({"type": "allowed_tools"})").status()), "tool_choice.mode");
}

}  // namespace
}  // namespace baton::router
