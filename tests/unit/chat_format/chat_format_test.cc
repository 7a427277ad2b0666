#include "common/chat_format/chat_format.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ChatFormat, APromptThatEndsWithTheClosingMarkerLeavesNoReasoning) {
  constexpr auto kThink = ReasoningFormat::kThink;
  EXPECT_TRUE(EndsReasoning(kThink, "assistant\n<think>\n\n</think>\n\n"));
  EXPECT_TRUE(EndsReasoning(kThink, "</think>"));
  EXPECT_FALSE(EndsReasoning(kThink, "<think>\n"));
  EXPECT_FALSE(EndsReasoning(kThink, "</think>Hm"));
  EXPECT_FALSE(EndsReasoning(ReasoningFormat::kNone, "</think>"));
  EXPECT_FALSE(EndsReasoning(ReasoningFormat::kHarmony, "<|end|>"));
  EXPECT_TRUE(EndsReasoning(ReasoningFormat::kSeedThink, "</seed:think>"));
  EXPECT_TRUE(EndsReasoning(ReasoningFormat::kGemmaThought, "<|channel>thought\n<channel|>"));
}

TEST(ChatFormat, ATemplateThatOnlyMentionsTheMarkersIsOfNoModelThatReasons) {
  const auto may_begin = [](const char* chat_template) {
    return MayBeginReasoning(ReasoningFormatOf(chat_template), chat_template);
  };
  EXPECT_TRUE(
      may_begin("{% if enable_thinking is false %}<think>\n\n</think>{% endif %}"));  // as Qwen3
  EXPECT_TRUE(may_begin("{% if not thinking %}</think>{% endif %}"));          // as DeepSeek V3.1
  EXPECT_TRUE(may_begin("Write your thoughts between [THINK] and [/THINK]"));  // as Magistral
  EXPECT_FALSE(may_begin("{{ content.split('</think>')[-1] }}"));  // as Qwen3 Instruct 2507
}

}  // namespace
}  // namespace baton
