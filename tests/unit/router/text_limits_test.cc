#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/text/model_text.h"
#include "tests/fakes/byte_model.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kContext = 64;

class ModelTextTest : public testing::Test {
 protected:
  void UseTemplate(const std::string& source) {
    std::ofstream(model_.path() + "/chat_template.jinja") << source;
  }
  // Sets text_; returns the error of ModelText::Load.
  Status Load() {
    auto text = ModelText::Load(model_.path(), {});
    if (!text.ok()) return text.status();
    text_ = *std::move(text);
    return OkStatus();
  }
  StatusOr<std::vector<TokenId>> EncodeText(std::string text) {
    request_.input = std::move(text);
    return text_->Encode(request_, limits_);
  }
  StatusOr<std::vector<TokenId>> EncodeChat(ChatInput chat) {
    request_.input = std::move(chat);
    return text_->Encode(request_, limits_);
  }

  const ByteModel model_ = ByteModel::WithoutWeights(kContext);
  std::unique_ptr<ModelText> text_;
  GenerationRequest request_;
  TextLimits limits_{.context_length = kContext, .cancelled = nullptr};
};

std::string Nested(int levels) {
  return std::string(static_cast<size_t>(levels), '[') +
         std::string(static_cast<size_t>(levels), ']');
}

TEST_F(ModelTextTest, JsonOfChatsIsBoundedInDepth) {
  ASSERT_TRUE(Load().ok());
  const std::string deep = Nested(200'000);
  const std::pair<ChatInput, const char*> cases[] = {
      {{{{"user", "x", "{\"tool_calls\": " + deep + "}"}}, "", ""},
       "chat.messages[0].extra_json: tool_calls is nested more than 60 levels deep"},
      {{{{"user", "x", ""}}, deep, ""}, "chat.tools_json is nested more than 60 levels deep"},
      {{{{"user", "x", ""}}, "", "{\"a\": {\"b\": " + deep + "}}"},
       "chat.template_arguments_json: a.b is nested more than 60 levels deep"},
  };
  for (const auto& [chat, expected] : cases) {
    const Status status = EncodeChat(chat).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(Message(status)), HasSubstr(expected));
  }
}

TEST_F(ModelTextTest, TheDeepestJsonThatIsTakenIsRendered) {
  UseTemplate("{{ messages[0].a is defined }}{{ tools is defined }}{{ b is defined }}");
  ASSERT_TRUE(Load().ok());
  const ChatInput chat{
      {{"user", "x", "{\"a\": " + Nested(59) + "}"}}, Nested(60), "{\"b\": " + Nested(59) + "}"};
  const auto tokens = EncodeChat(chat);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(tokens->size(), std::string("TrueTrueTrue").size());
}

TEST_F(ModelTextTest, ExtraMembersComeInOrderAndMayReplaceTheMessages) {
  UseTemplate("{{ messages[0]|tojson }}");
  ASSERT_TRUE(Load().ok());
  const auto tokens =
      EncodeChat({{{"user", "x", R"({"z": 1, "content": [2], "a": {"y": 0, "b": 0}})"}}, "", ""});
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(text_->tokenizer().Decode(*tokens, false),
            R"({"role": "user", "content": [2], "z": 1, "a": {"y": 0, "b": 0}})");
}

TEST_F(ModelTextTest, TextThatCannotFitIsRefusedBeforeItIsTokenised) {
  UseTemplate("{% for m in messages %}{{ m.content }}{% endfor %}");
  ASSERT_TRUE(Load().ok());
  ASSERT_EQ(text_->tokenizer().max_token_bytes(), 1u);
  int asked = 0;
  limits_.cancelled = [&] {
    ++asked;
    return false;
  };
  const std::string expected =
      "this model's maximum context length is 64 tokens, which hold 64 bytes at most";
  EXPECT_THAT(std::string(Message(EncodeText(std::string(8 << 20, ' ')).status())),
              HasSubstr("it has 8388608 bytes, but " + expected));
  EXPECT_EQ(asked, 0) << "the text was tokenised";
  // Each message alone fits into the context; both together do not.
  const std::string half(40, 'x');
  const Status both = EncodeChat({{{"user", half, ""}, {"user", half, ""}}, "", ""}).status();
  EXPECT_EQ(both.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(both)), HasSubstr("it has 80 bytes, but " + expected));
  EXPECT_TRUE(EncodeText(std::string(63, ' ')).ok());
  EXPECT_FALSE(EncodeText(std::string(64, ' ')).ok());
}

TEST_F(ModelTextTest, TheWorkOfAClientThatLeftEnds) {
  UseTemplate("{% for i in range(99999) %}{% for j in range(99) %}{% endfor %}{% endfor %}");
  ASSERT_TRUE(Load().ok());
  int asked = 0;
  limits_.cancelled = [&] { return ++asked > 2; };
  EXPECT_EQ(EncodeChat({{{"user", "x", ""}}, "", ""}).status().code(), StatusCode::kCancelled);
  EXPECT_LT(asked, 10) << "it went on";
}

TEST_F(ModelTextTest, WorkOverATemplatesLimitsIsInvalid) {
  const char* const templates[] = {
      "{% for i in range(99999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
      "{{ 'x' * 999999999999 }}",
      "{{ range(999999) }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"};
  for (const char* source : templates) {
    UseTemplate(source);
    ASSERT_TRUE(Load().ok());
    const Status status = EncodeChat({{{"user", "x", ""}}, "", ""}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << source << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("chat: template line 1")) << source;
  }
}

TEST_F(ModelTextTest, ErrorsOfATemplateNameItsFileAndLine) {
  UseTemplate("a\n{{ 'x' }\n");
  EXPECT_THAT(std::string(Message(Load())),
              HasSubstr(model_.path() + "/chat_template.jinja: template line 2"));
}

}  // namespace
}  // namespace baton::router
