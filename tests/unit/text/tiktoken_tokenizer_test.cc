#include "common/text/tiktoken_tokenizer.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/text/tokenizer.h"
#include "tests/unit/text/smollm2.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(TiktokenTokenizer, TokensAreThoseOfTiktoken) {
  const auto golden = ReadTestJson("tiktoken.json");
  const auto spec = TokenizerSpecFromTiktoken(golden["ranks"].get<std::string>(),
                                              golden["tokenizer_config"].dump());
  ASSERT_TRUE(spec.ok()) << Message(spec.status());
  const auto tokenizer = Tokenizer::Create(*spec);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  const auto is_tool_call = [&](const std::string& text) {
    return text.find("<|tool_call_begin|>") != std::string::npos;
  };
  for (const auto& one : golden["cases"]) {
    const auto text = one[0].get<std::string>();
    const auto all = one[1].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer->Encode(text, {.add_special = true, .parse_special = true}), all) << one[0];
    // Added tokens that are not special are found in every text.
    if (is_tool_call(text)) continue;
    EXPECT_EQ(tokenizer->Encode(text, {}), one[2].get<std::vector<TokenId>>()) << one[0];
  }
  EXPECT_GE(golden["cases"].size(), 600u);
  const auto text_of = [&](TokenId id) { return spec->pieces[static_cast<size_t>(id)].bytes; };
  EXPECT_EQ(text_of(*spec->bos), "[BOS]");
  EXPECT_EQ(text_of(spec->eos.at(0)), "[EOS]");
  EXPECT_EQ(text_of(*spec->padding), "[PAD]");
  EXPECT_TRUE(spec->prefix.empty());
}

TEST(TiktokenTokenizer, BadFilesAreErrorsThatNameTheLine) {
  const std::string config = R"({"tokenizer_class":"TikTokenTokenizer"})";
  const auto message = [&](const std::string& ranks) {
    return std::string(Message(TokenizerSpecFromTiktoken(ranks, config).status()));
  };
  EXPECT_EQ(message("YQ== 0\nYg== 1\n"), "");
  EXPECT_EQ(message("YQ== 0\r\nYg== 1"), "");
  EXPECT_THAT(message(""), HasSubstr("no tokens"));
  EXPECT_THAT(message("YQ== 0\nYg==\n"), HasSubstr("line 2 must be a token in base64"));
  EXPECT_THAT(message("YQ== 0\n%%%% 1\n"), HasSubstr("line 2 must be a token in base64"));
  EXPECT_THAT(message("YQ== 0\nYg== 2\n"), HasSubstr("line 2 has rank '2'; it must be 1"));
  EXPECT_THAT(message("YQ== -1\n"), HasSubstr("line 1 has rank '-1'; it must be 0"));
  EXPECT_THAT(message("YQ== 0x\n"), HasSubstr("line 1 has rank '0x'"));
}

TEST(TiktokenTokenizer, BadConfigsAreErrorsThatNameTheField) {
  const auto message = [](const std::string& config) {
    return std::string(Message(TokenizerSpecFromTiktoken("YQ== 0\n", config).status()));
  };
  EXPECT_THAT(message("{}"), HasSubstr("tokenizer_class ''"));
  EXPECT_THAT(message("{"), HasSubstr("tokenizer_config.json"));
  EXPECT_THAT(message(R"({"tokenizer_class":"QWenTokenizer"})"), HasSubstr("'QWenTokenizer'"));
  const auto with = [&](const std::string& id) {
    return message(R"({"tokenizer_class":"TikTokenTokenizer","added_tokens_decoder":{")" + id +
                   R"(":{"content":"x"}}})");
  };
  EXPECT_EQ(with("1"), "");
  EXPECT_THAT(with("0"), HasSubstr("'x' has id 0; added tokens begin at 1"));
  EXPECT_THAT(with("x"), HasSubstr("the id of 'x'"));
  EXPECT_THAT(with("16000000"), HasSubstr("'x' has id 16000000"));
}

}  // namespace
}  // namespace baton
