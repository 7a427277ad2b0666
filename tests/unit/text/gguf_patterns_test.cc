#include "common/text/gguf_patterns.h"

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/text/hf_tokenizer.h"
#include "common/text/tokenizer.h"
#include "common/text/utf8.h"
#include "tests/unit/text/smollm2.h"
#include "tests/unit/text/token_hash.h"

namespace baton {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

// All characters of `ranges`, in blocks of 640 as words of 5.
std::vector<std::string> BlocksOf(const ordered_json& ranges) {
  std::vector<std::string> blocks;
  int count = 0;
  for (const auto& range : ranges) {
    for (auto code = range[0].get<char32_t>(); code <= range[1].get<char32_t>(); ++code, ++count) {
      if (count % 640 == 0) {
        blocks.emplace_back();
      } else if (count % 5 == 0) {
        blocks.back() += ' ';
      }
      AppendUtf8(blocks.back(), code);
    }
  }
  return blocks;
}

class GgufPatternTest : public ::testing::TestWithParam<const char*> {
 protected:
  void ExpectGoldens(const StatusOr<TokenizerSpec>& spec) {
    ASSERT_TRUE(spec.ok()) << Message(spec.status());
    const auto tokenizer = Tokenizer::Create(*spec);
    ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
    const auto& golden = golden_["patterns"][GetParam()];
    for (size_t i = 0; i < golden_["texts"].size(); ++i) {
      const auto text = golden_["texts"][i].get<std::string>();
      EXPECT_EQ(HashOf(tokenizer->Encode(text, {})), golden["texts"][i]) << golden_["texts"][i];
    }
    const std::vector<std::string> blocks = BlocksOf(golden_["ranges"]);
    ASSERT_EQ(blocks.size(), golden["characters"].size());
    for (size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(HashOf(tokenizer->Encode(blocks[i], {})), golden["characters"][i])
          << i << ": " << blocks[i];
    }
  }

  const ordered_json golden_ = ReadTestJson("patterns.json");
};

TEST_P(GgufPatternTest, TokensOfAFileThatNamesThePatternAreTheReferences) {
  GgufTokenizerFields fields;
  fields.model = "gpt2";
  fields.pre = GetParam();
  fields.tokens.resize(golden_["vocab"].size());
  for (const auto& [text, id] : golden_["vocab"].items()) fields.tokens[id.get<size_t>()] = text;
  fields.merges = golden_["merges"].get<std::vector<std::string>>();
  ExpectGoldens(TokenizerSpecFromGguf(fields));
}

TEST_P(GgufPatternTest, TokensOfATokenizerJsonAreTheReferences) {
  const auto& golden = golden_["patterns"][GetParam()];
  const ordered_json model = {{"type", "BPE"},
                              {"vocab", golden_["vocab"]},
                              {"merges", golden_["merges"]},
                              {"ignore_merges", golden["ignore_merges"]}};
  const ordered_json file = {{"model", model},
                             {"pre_tokenizer", golden["pre_tokenizer"]},
                             {"decoder", {{"type", "ByteLevel"}}}};
  ExpectGoldens(TokenizerSpecFromJson(file.dump(), ""));
}

INSTANTIATE_TEST_SUITE_P(Patterns,
                         GgufPatternTest,
                         ::testing::Values("gpt-2",
                                           "llama-bpe",
                                           "glm4",
                                           "qwen2",
                                           "tekken",
                                           "gpt-4o",
                                           "tiny_aya",
                                           "kimi-k2",
                                           "deepseek-v3",
                                           "deepseek-coder",
                                           "qwen35",
                                           "seed-coder",
                                           "bailingmoe",
                                           "exaone-moe"));

TEST(GgufPattern, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const auto pattern = GgufPatternOf("gpt-5");
  EXPECT_EQ(pattern.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Message(pattern.status()), HasSubstr("tokenizer.ggml.pre is 'gpt-5'"));
  EXPECT_THAT(Message(pattern.status()), HasSubstr("deepseek-v3"));
}

TEST(GgufPattern, TextsBeginWithBosWhereLlamaCppPutsIt) {
  EXPECT_TRUE(GgufPatternOf("llama-bpe")->add_bos);
  EXPECT_TRUE(GgufPatternOf("tekken")->add_bos);
  EXPECT_FALSE(GgufPatternOf("gpt-4o")->add_bos);
}

}  // namespace
}  // namespace baton
