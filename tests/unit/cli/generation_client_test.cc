#include "cli/generation_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::HasSubstr;

// No server listens at this address: an invalid call must fail before it is sent.
Status ErrorOf(const GenerateCall& call) {
  return GenerationClient("127.0.0.1:1").Generate(call, [](std::string_view) {}, {}).status();
}

TEST(GenerationClient, NamesTextThatIsNotUtf8) {
  GenerateCall prompt;
  prompt.text = "na\xC3\xAFve \xEF\xBF\xBD a\xFF";
  EXPECT_EQ(ErrorOf(prompt).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(ErrorOf(prompt)),
              HasSubstr("the prompt is not valid UTF-8: see its byte 12"));

  GenerateCall chat;
  chat.turns = {{"system", "fine"}, {"user", "\xE2\x82"}};
  EXPECT_THAT(Message(ErrorOf(chat)), HasSubstr("the user message is not valid UTF-8"));

  GenerateCall stop;
  stop.text = "fine";
  stop.stop = {"fine", "\xC0"};
  EXPECT_THAT(Message(ErrorOf(stop)), HasSubstr("a stop string is not valid UTF-8"));
}

TEST(GenerationClient, NamesTheRouterThatDoesNotAnswer) {
  GenerateCall call;
  call.text = "na\xC3\xAFve \xEF\xBF\xBD";
  EXPECT_EQ(ErrorOf(call).code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(ErrorOf(call)), HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace baton
