// How requests become prompts: templates, the variables of templates, and the end of the prompt.
#include "router/model_text.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/api/openai_request.h"
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

ModelText Model(const std::string& chat_template, bool with_bos = false) {
  return ModelText("m", Bytes(with_bos), *ChatTemplate::Parse(chat_template), {}, 1000, 257);
}

// Renders `chat` to the text of its prompt.
StatusOr<std::string> Prompt(const std::string& chat_template, const ChatInput& chat) {
  const ModelText model = Model(chat_template);
  BATON_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, model.EncodeChat(chat));
  return model.tokenizer().Decode(tokens, false);
}

// The same for the body of an OpenAI request.
StatusOr<std::string> PromptOfBody(const std::string& chat_template, const std::string& body) {
  BATON_ASSIGN_OR_RETURN(const ApiRequest request, ParseOpenAiRequest(OpenAiKind::kChat, body));
  return Prompt(chat_template, std::get<ChatInput>(request.inputs.at(0)));
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
