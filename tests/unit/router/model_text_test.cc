// How requests become prompts: templates, the variables of templates, and the end of the prompt.
#include "router/text/model_text.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "router/api/messages_request.h"
#include "router/api/openai_request.h"
#include "router/api/responses_request.h"
#include "router/request_error.h"
#include "tests/support/temporary_folder.h"

namespace baton::router {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr TokenId kBos = 256;

// A tokenizer with one token per byte, and BOS if `with_bos`.
Tokenizer Bytes(bool with_bos) {
  TokenizerSpec spec;
  for (int byte = 0; byte < 256; ++byte) {
    Piece piece;
    piece.bytes = std::string(1, static_cast<char>(byte));
    spec.pieces.push_back(piece);
  }
  if (with_bos) {
    Piece bos;
    bos.bytes = "<s>";
    bos.kind = PieceKind::kControl;
    spec.pieces.push_back(bos);
    spec.bos = kBos;
  }
  return *Tokenizer::Create(std::move(spec));
}

ModelText Model(const std::string& chat_template,
                bool with_bos = false,
                const ChatFormats& formats = {}) {
  return ModelText(
      "m", Bytes(with_bos), *ChatTemplate::Parse(chat_template), {}, 1000, 257, formats);
}

// Renders the chat of `request` to the text of its prompt.
StatusOr<std::string> Prompt(const ModelText& model, const GenerationRequest& request) {
  BATON_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, model.Encode(request));
  return model.tokenizer().Decode(tokens, false);
}
StatusOr<std::string> Prompt(const std::string& chat_template, const ChatInput& chat) {
  GenerationRequest request;
  request.input = chat;
  return Prompt(Model(chat_template), request);
}

// The same for a request of an API.
StatusOr<std::string> PromptOf(const ModelText& model, const StatusOr<ApiRequest>& read) {
  if (!read.ok()) return read.status();
  GenerationRequest request = read->generation;
  request.input = read->inputs.at(0);
  return Prompt(model, request);
}
StatusOr<std::string> PromptOfBody(const std::string& chat_template, const std::string& body) {
  return PromptOf(Model(chat_template), ParseOpenAiRequest(OpenAiKind::kChat, body));
}

// The text of the prompt, or the error.
std::string TextOf(const StatusOr<std::string>& prompt) {
  return prompt.ok() ? *prompt : "error: " + std::string(Message(prompt.status()));
}
std::string Printed(const std::string& chat_template, const std::string& body) {
  return TextOf(PromptOfBody(chat_template, body));
}

// ---- tool calls

constexpr const char* kCallsAsJson =
    "{% for m in messages %}{% for c in m.tool_calls %}"
    "{{ c.function.name }} {{ c.function.arguments | tojson }};{% endfor %}{% endfor %}";
constexpr const char* kCallsByItem =
    "{% for m in messages %}{% for c in m.tool_calls %}"
    "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }},{% endfor %}"
    "{% endfor %}{% endfor %}";

// An assistant's message as OpenAI's clients return it, with the arguments as JSON text.
std::string Call(const std::string& arguments) {
  return fmt::format(
      R"({{"tool_calls": [{{"id": "1", "type": "function",
           "function": {{"name": "f", "arguments": {}}}}}]}})",
      arguments);
}

std::string BodyWithCall(const std::string& arguments) {
  const std::string rest = Call(arguments).substr(1);
  return R"({"messages": [{"role": "assistant", "content": null, )" + rest + "]}";
}

TEST(ToolCalls, ArgumentsThatAreTextAreAnObjectToTheTemplate) {
  const std::string arguments = R"("{\"where\": \"Rome\", \"days\": 2}")";
  EXPECT_EQ(Printed(kCallsAsJson, BodyWithCall(arguments)), R"(f {"where": "Rome", "days": 2};)");
  EXPECT_EQ(Printed(kCallsByItem, BodyWithCall(arguments)), "where=Rome,days=2,");
}

TEST(ToolCalls, ExtraJsonOfGrpcIsReadAlike) {
  const ChatInput chat{{{"assistant", "", Call(R"("{\"a\": 1}")")}}, "", ""};
  EXPECT_EQ(TextOf(Prompt(kCallsAsJson, chat)), R"(f {"a": 1};)");
  EXPECT_EQ(TextOf(Prompt(kCallsByItem, chat)), "a=1,");
}

TEST(ToolCalls, ArgumentsThatAreAnObjectStayOne) {
  EXPECT_EQ(Printed(kCallsAsJson, BodyWithCall(R"({"a": 1})")), R"(f {"a": 1};)");
}

TEST(ToolCalls, TextThatIsNoObjectStaysText) {
  for (const char* text : {"[1]", "5", "not JSON", "{", "null"}) {
    EXPECT_EQ(Printed(kCallsAsJson, BodyWithCall(fmt::format("\"{}\"", text))),
              fmt::format("f \"{}\";", text));
  }
}

TEST(ToolCalls, NoTextIsACallWithoutArguments) {
  EXPECT_EQ(Printed(kCallsAsJson, BodyWithCall(R"("")")), "f {};");
}

TEST(ToolCalls, OtherShapesReachTheTemplateAsTheyAre) {
  constexpr const char* kTemplate = "{{ messages[0].tool_calls | tojson }}";
  for (const char* calls : {"[]", "5", "[1]", "[{}]", "[{\"function\": 1}]"}) {
    const std::string body = fmt::format(
        R"({{"messages": [{{"role": "assistant", "content": "", "tool_calls": {}}}]}})", calls);
    EXPECT_EQ(Printed(kTemplate, body), calls);
  }
}

// ---- contents

TEST(Contents, NullReachesTheTemplateAsNull) {
  constexpr const char* kTemplate =
      "{{ 'none' if messages[0].content is none else '[' + messages[0].content + ']' }}";
  EXPECT_EQ(Printed(kTemplate, R"({"messages": [{"role": "assistant", "content": null}]})"),
            "none");
  EXPECT_EQ(Printed(kTemplate, R"({"messages": [{"role": "assistant", "content": ""}]})"), "[]");
  EXPECT_EQ(Printed(kTemplate, R"({"messages": [{"role": "assistant"}]})"), "[]");
}

TEST(Contents, NullIsAnEmptyTextToATemplateThatCannotPrintIt) {
  constexpr const char* kTemplate =
      "{% for m in messages %}{{ '[' + m.content + ']' }}{% endfor %}";
  EXPECT_EQ(Printed(kTemplate,
                    R"({"messages": [{"role": "user", "content": "hi"},
                                           {"role": "assistant", "content": null}]})"),
            "[hi][]");
}

// ---- roles

// Prints only the roles that it knows, as most templates do.
constexpr const char* kKnownRoles =
    "{% for m in messages %}{% if m.role in ['system', 'user', 'assistant'] %}"
    "<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}";
constexpr const char* kAnyRole = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";

std::string BodyWithRole(const std::string& role) {
  return fmt::format(R"({{"messages": [{{"role": "user", "content": "hi"}},
                                       {{"role": "{}", "content": "zebra"}}]}})",
                     role);
}

TEST(Roles, DeveloperIsSystemToEveryTemplate) {
  EXPECT_EQ(Printed(kKnownRoles, BodyWithRole("developer")), "<user>hi<system>zebra");
  EXPECT_EQ(Printed(kAnyRole, BodyWithRole("developer")), "<user>hi<system>zebra");
}

TEST(Roles, AMessageThatTheTemplateWouldLeaveOutIsRefused) {
  for (const char* role : {"martian", "function", "tool"}) {
    const Status status = PromptOfBody(kKnownRoles, BodyWithRole(role)).status();
    EXPECT_EQ(
        Message(status),
        fmt::format("messages[1].role is \"{}\"; this model's chat template prints no message "
                    "of this role",
                    role));
    EXPECT_EQ(MemberOf(status), "messages[1].role");
    EXPECT_EQ(Printed(kAnyRole, BodyWithRole(role)), fmt::format("<user>hi<{}>zebra", role));
  }
  const Status grpc =
      Prompt(kKnownRoles, {{{"user", "x", R"({"role": "martian"})"}}, "", ""}).status();
  EXPECT_EQ(MemberOf(grpc), "chat.messages[0].role");
}

TEST(Roles, ASystemMessageIsNotLeftOutEither) {
  constexpr const char* kNoSystem =
      "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}";
  for (const char* role : {"system", "developer"}) {
    const Status status = PromptOfBody(kNoSystem, BodyWithRole(role)).status();
    EXPECT_EQ(MemberOf(status), "messages[1].role") << role;
  }
  const auto messages = ReadMessagesRequest(
      MessagesKind::kCreate, nlohmann::ordered_json::parse(R"({"max_tokens": 1, "system": "x",
                                        "messages": [{"role": "user", "content": "x"}]})"));
  const Status status = PromptOf(Model(kNoSystem), messages).status();
  EXPECT_EQ(Message(status),
            "messages has a message of the role \"system\"; this model's chat template prints no "
            "message of this role");
}

TEST(Roles, ATemplateMayLookAtTheContentOfAMessage) {
  constexpr const char* kPicky =
      "{% for m in messages %}{% if m.role == 'ipython' and m.content != 'zebra' %}"
      "{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor %}";
  EXPECT_EQ(Printed(kPicky, BodyWithRole("ipython")), "hizebra");
}

// ---- variables of the template

std::string BodyWith(const std::string& member) {
  return R"({"messages": [{"role": "user", "content": "x"}], )" + member + "}";
}

TEST(TemplateArguments, WhatTheRequestAndTheModelStateIsRefused) {
  for (const char* name : {"messages", "tools", "bos_token", "eos_token"}) {
    const std::string member = fmt::format(R"("chat_template_kwargs": {{"{}": []}})", name);
    const Status status = PromptOfBody(kAnyRole, BodyWith(member)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(MemberOf(status), std::string("chat_template_kwargs.") + name);
  }
  EXPECT_EQ(Printed("{{ a }}", BodyWith(R"("chat_template_kwargs": {"a": 5})")), "5");
}

TEST(Reasoning, AnEffortThatTheTemplateDoesNotReadIsRefusedByTheNameThatWasSent) {
  const Status chat = PromptOfBody(kAnyRole, BodyWith(R"("reasoning_effort": "low")")).status();
  EXPECT_EQ(Message(chat), "reasoning_effort is not read by this model's chat template");
  EXPECT_EQ(MemberOf(chat), "reasoning_effort");
  const auto responses = ReadResponsesRequest(
      nlohmann::ordered_json::parse(R"({"input": "x", "reasoning": {"effort": "low"}})"));
  EXPECT_EQ(MemberOf(PromptOf(Model(kAnyRole), responses).status()), "reasoning.effort");
  EXPECT_EQ(TextOf(PromptOf(Model("{{ reasoning_effort }}"), responses)), "low");
  // A word that merely contains the name is not the variable.
  EXPECT_FALSE(PromptOf(Model("{{ my_reasoning_effort_x }}"), responses).ok());
}

TEST(Reasoning, ThinkingThatTheTemplateCannotSwitchIsRefused) {
  const auto prompt = [](const ModelText& model, const std::string& type) {
    const auto request = ReadMessagesRequest(
        MessagesKind::kCreate,
        nlohmann::ordered_json::parse(fmt::format(
            R"({{"max_tokens": 1, "thinking": {{"type": "{}", "budget_tokens": 9}},
                 "messages": [{{"role": "user", "content": "x"}}]}})",
            type)));
    return PromptOf(model, request);
  };
  const ModelText plain = Model("a");
  EXPECT_EQ(Message(prompt(plain, "enabled").status()),
            "thinking cannot be enabled: this model's chat template does not switch it");
  EXPECT_EQ(MemberOf(prompt(plain, "enabled").status()), "thinking");
  EXPECT_TRUE(prompt(plain, "disabled").ok());
  EXPECT_TRUE(prompt(plain, "adaptive").ok());
  const ModelText always = Model("a", false, {.reasoning = ReasoningFormat::kThink});
  EXPECT_TRUE(prompt(always, "enabled").ok());
  EXPECT_FALSE(prompt(always, "disabled").ok());
  for (const char* name : {"enable_thinking", "thinking"}) {
    const ModelText switched = Model(fmt::format("{{{{ {} }}}}", name));
    EXPECT_EQ(TextOf(prompt(switched, "enabled")), "True");
    EXPECT_EQ(TextOf(prompt(switched, "disabled")), "False");
  }
}

// ---- where a prompt ends

constexpr const char* kTurns =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";
constexpr const char* kTrimmedTurns =
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}<end>{% endfor %}";

std::string Continued(const std::string& content, const std::string& rest) {
  return fmt::format(
      R"({{"messages": [{{"role": "user", "content": "hi"}},
                        {{"role": "assistant", "content": "{}"}}]{}}})",
      content,
      rest);
}

TEST(PromptEnd, AnAnswerBeginsUnlessToldOtherwise) {
  EXPECT_EQ(Printed(kTurns, Continued("So", "")), "<user>hi<end><assistant>So<end><assistant>");
  EXPECT_EQ(Printed(kTurns, Continued("So", R"(, "add_generation_prompt": false)")),
            "<user>hi<end><assistant>So<end>");
}

TEST(PromptEnd, AFinalMessageIsContinued) {
  const std::string rest = R"(, "continue_final_message": true)";
  EXPECT_EQ(Printed(kTurns, Continued("So it", rest)), "<user>hi<end><assistant>So it");
  EXPECT_EQ(Printed(kTurns, Continued("So it ", rest)), "<user>hi<end><assistant>So it ");
  EXPECT_EQ(Printed(kTurns, Continued("", rest)), "<user>hi<end><assistant>");
  // The end of the content is found although another message has the same content.
  EXPECT_EQ(Printed(kTurns, Continued("hi", rest)), "<user>hi<end><assistant>hi");
}

TEST(PromptEnd, ATemplateThatTrimsTrimsWhatIsContinued) {
  const std::string rest = R"(, "continue_final_message": true)";
  EXPECT_EQ(Printed(kTrimmedTurns, Continued("So it ", rest)), "<user>hi<end><assistant>So it");
}

TEST(PromptEnd, AnAnswerCannotBeginAndAMessageBeContinued) {
  const std::string rest = R"(, "continue_final_message": true, "add_generation_prompt": true)";
  const Status status = PromptOfBody(kTurns, Continued("So", rest)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MemberOf(status), "continue_final_message");
}

TEST(PromptEnd, AMessageThatIsNotPrintedCannotBeContinued) {
  const Status status = PromptOfBody("{{ messages[0].content }}",
                                     Continued("So", R"(, "continue_final_message": true)"))
                            .status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MemberOf(status), "continue_final_message");
}

// ---- empty prompts, special tokens

GenerationRequest Text(const std::string& text) {
  GenerationRequest request;
  request.input = text;
  return request;
}

TEST(EmptyPrompt, BeginsWithBosWhereThereIsOne) {
  const auto tokens = Model("", true).Encode(Text(""));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_THAT(*tokens, ElementsAre(kBos));
  const Status status = Model("").Encode(Text("")).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("text is empty"));
  EXPECT_EQ(MemberOf(status), "text");
}

// ---- files

TEST(ModelTextFiles, ATokenizerWithMoreIdsThanTheEmbeddingHasRowsIsRefused) {
  const auto load = [](int rows) {
    const TemporaryFolder folder;
    folder.Write("config.json",
                 fmt::format(R"({{"model_type":"llama","hidden_size":8,"num_attention_heads":1,)"
                             R"("num_hidden_layers":1,"intermediate_size":8,"vocab_size":{},)"
                             R"("max_position_embeddings":64,"eos_token_id":1}})",
                             rows));
    folder.Write("tokenizer.json",
                 R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":)"
                 R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
                 R"("use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel"},)"
                 R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2},"merges":[]}})");
    return ModelText::Load(folder.path(), {});
  };
  const auto small = load(2);
  EXPECT_EQ(small.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(small.status())),
              HasSubstr("its tokenizer has 3 token ids, but its embedding has only 2 rows"));
  // Ids that the tokenizer does not have are not valid.
  const auto padded = load(8);
  ASSERT_TRUE(padded.ok()) << padded.status();
  EXPECT_EQ((*padded)->vocabulary(), 3);
}

// ---- limits

TEST(TemplateLimits, AreNoOverload) {
  const ChatInput plain{{{"user", "x", ""}}, "", ""};
  const Status range = Prompt("{{ range(100000000) }}", plain).status();
  EXPECT_EQ(range.code(), StatusCode::kInvalidArgument) << range;
  EXPECT_THAT(std::string(Message(range)), HasSubstr("chat: "));
  const std::string deep = std::string(70, '[') + std::string(70, ']');
  const ChatInput nested{{{"user", "x", fmt::format("{{\"a\": {}}}", deep)}}, "", ""};
  EXPECT_EQ(Prompt("", nested).status().code(), StatusCode::kInvalidArgument);
}

TEST(TemplateLimits, ErrorsOfTheTemplateNameTheMessages) {
  GenerationRequest request;
  request.names.messages = "messages";
  request.input = ChatInput{{{"user", "x", ""}}, "", ""};
  const Status status = Model("{{ raise_exception('no') }}").Encode(request).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MemberOf(status), "messages");
}

}  // namespace
}  // namespace baton::router
