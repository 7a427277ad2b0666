#include "common/text/tokenizer.h"

#include <string>
#include <vector>

#include <absl/strings/escaping.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/text/detokenizer.h"
#include "common/text/utf8.h"
#include "tests/unit/text/smollm2.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Unbase64(const std::string& text) {
  std::string bytes;
  EXPECT_TRUE(absl::Base64Unescape(text, &bytes)) << text;
  return bytes;
}

std::vector<TokenId> IdsOr(const nlohmann::ordered_json& ids, std::vector<TokenId> same) {
  return ids == "same" ? same : ids.get<std::vector<TokenId>>();
}

class SmolLm2 : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tokenizer_ = new Tokenizer(SmolLm2Tokenizer()); }
  static void TearDownTestSuite() { delete tokenizer_; }
  static std::vector<TokenId> Encode(std::string_view text, bool parse_special = false) {
    return tokenizer_->Encode(text, {.add_special = true, .parse_special = parse_special});
  }

  static Tokenizer* tokenizer_;
};
Tokenizer* SmolLm2::tokenizer_ = nullptr;

TEST_F(SmolLm2, AllGoldenStringsGiveTheReferencesTokens) {
  const auto golden = ReadTestJson("smollm2_tokenizer_cases.json");
  int tried = 0;
  for (const auto& one : golden["cases"]) {
    const bool valid = one.contains("text");
    const std::string text = valid ? one["text"].get<std::string>() : Unbase64(one["bytes_b64"]);
    EXPECT_EQ(IsValidUtf8(text), valid) << one["name"];
    const auto llama = one["llama_cpp"].is_array() ? one["llama_cpp"].get<std::vector<TokenId>>()
                                                   : std::vector<TokenId>();
    const auto with_special = IdsOr(one["hf"], llama);
    const auto without = one["hf_no_special"] != "same" ? IdsOr(one["hf_no_special"], {})
                         : one["llama_cpp_no_special"] != "same"
                             ? IdsOr(one["llama_cpp_no_special"], {})
                             : llama;
    EXPECT_EQ(Encode(text, true), with_special) << one["name"];
    EXPECT_EQ(Encode(text, false), without) << one["name"];
    const std::string decoded = one["decoded_hf"] == "same" ? text : Unbase64(one["decoded_hf"]);
    EXPECT_EQ(tokenizer_->Decode(with_special, false), ReplaceInvalidUtf8(decoded)) << one["name"];
    ++tried;
  }
  EXPECT_EQ(tried, 135);
}

}  // namespace
}  // namespace baton
