// How the router finds the formats of calls and reasoning in chat templates. What it finds in the
// templates of published models is in router/README.md (published_templates_test).
#include "router/text/chat_formats.h"

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/mapped_file.h"
#include "tests/support/byte_tokenizer.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;

ChatFormats Found(std::string_view source) {
  const auto chat_template = ChatTemplate::Parse(source);
  EXPECT_TRUE(chat_template.ok()) << chat_template.status();
  return FindChatFormats(*chat_template, BytesAnd({"<tool_call>"}));
}

// A template that prints `call` for each call of a message, and `description` where tools are
// offered.
std::string Printing(std::string_view call, std::string_view description = "") {
  return fmt::format(
      "{{% if tools %}}{}{{% endif %}}{{% for m in messages %}}<|{{{{ m.role }}}}|>{{{{ m.content "
      "}}}}"
      "{{% for c in m.tool_calls or [] %}}{}{{% endfor %}}<|end|>{{% endfor %}}",
      description,
      call);
}

constexpr std::string_view kHermes =
    "<tool_call>{\"name\": \"{{ c.function.name }}\", \"arguments\": "
    "{{ c.function.arguments | tojson }}}</tool_call>";

TEST(ChatFormats, OfTemplatesInTheStyleOfModels) {
  for (const auto& [file, format] : {std::pair("qwen25_style", ToolCallFormat::kHermes),
                                     std::pair("qwen3_style", ToolCallFormat::kHermes),
                                     std::pair("llama31_style", ToolCallFormat::kLlamaJson),
                                     std::pair("mistral_v3_style", ToolCallFormat::kMistral),
                                     std::pair("macros_style", ToolCallFormat::kNone)}) {
    const std::string path = fmt::format("{}/text/templates/{}.jinja", BATON_TEST_DATA, file);
    EXPECT_EQ(Found(ReadFile(path).value()).calls, format) << file;
  }
}

TEST(ChatFormats, WhatTheTemplatePrintsCounts) {
  EXPECT_EQ(Found(Printing(kHermes)).calls, ToolCallFormat::kHermes);
  // What it says to the model does not count then.
  EXPECT_EQ(Found(Printing(kHermes, "Write <function=name>.")).calls, ToolCallFormat::kHermes);
  const ChatFormats other =
      Found(Printing("<tool_call>{{ c.function.name }}: {{ c.function.arguments | tojson }}"));
  EXPECT_EQ(other.calls, ToolCallFormat::kNone);
  EXPECT_THAT(other.WhyNoCalls(), HasSubstr("<tool_call>probe_tool: {"));
}

TEST(ChatFormats, AParserMustGiveBackAllArguments) {
  // The values lose their types.
  const std::string text =
      "<tool_call>{\"name\": \"{{ c.function.name }}\", \"arguments\": { "
      "{% for k, v in c.function.arguments.items() %}\"{{ k }}\": \"{{ v }}\""
      "{% if not loop.last %}, {% endif %}{% endfor %}}}</tool_call>";
  EXPECT_EQ(Found(Printing(text)).calls, ToolCallFormat::kNone);
  // Text that is left over would be content.
  EXPECT_EQ(Found(Printing(std::string(kHermes) + "</seed:tool_call>")).calls,
            ToolCallFormat::kNone);
}

TEST(ChatFormats, OneCallIsEnoughWhereTwoAreRefused) {
  const std::string single =
      "{% if m.tool_calls | length > 1 %}{{ raise_exception('one call') }}{% endif %}";
  EXPECT_EQ(Found(Printing(single + std::string(kHermes))).calls, ToolCallFormat::kHermes);
}

TEST(ChatFormats, ArgumentsMayHaveToBeText) {
  const std::string text =
      "<tool_call>{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ '' + "
      "c.function.arguments }}}</tool_call>";
  EXPECT_EQ(Found(Printing(text)).calls, ToolCallFormat::kHermes);
}

TEST(ChatFormats, OfATemplateThatPrintsNoCallsItsWordsCount) {
  EXPECT_EQ(Found(Printing("", "Write <tool_call>{\"name\": …}</tool_call>.")).calls,
            ToolCallFormat::kHermes);
  EXPECT_EQ(Found(Printing("")).calls, ToolCallFormat::kNone);
  EXPECT_THAT(Found(Printing("")).WhyNoCalls(), HasSubstr("no known format"));
}

// As Llama 4's.
TEST(ChatFormats, ATemplateThatAsksForPythonMayPrintJson) {
  const std::string json =
      "{\"name\": \"{{ c.function.name }}\", \"parameters\": {{ c.function.arguments | tojson }}}";
  EXPECT_EQ(Found(Printing(json, "Write [func_name1(param=value)].")).calls,
            ToolCallFormat::kPythonic);
  EXPECT_EQ(Found(Printing(json)).calls, ToolCallFormat::kLlamaJson);
}

}  // namespace
}  // namespace baton::router
