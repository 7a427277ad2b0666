#include "common/text/tekken_tokenizer.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/text/tokenizer.h"
#include "tests/unit/text/smollm2.h"
#include "tests/unit/text/token_hash.h"

namespace baton {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

// The file "old", which names no special tokens, or "new", which does.
std::string FileOf(const ordered_json& golden, const std::string& name) {
  ordered_json file = {{"config", golden["config"]}, {"vocab", golden["vocab"]}};
  if (name == "new") file["special_tokens"] = golden["special_tokens"];
  return file.dump();
}

class TekkenGoldens : public ::testing::TestWithParam<const char*> {};

TEST_P(TekkenGoldens, TokensAreThoseOfMistralCommon) {
  const auto golden = ReadTestJson("tekken.json");
  const auto& expected = golden["files"][GetParam()];
  const auto spec = TokenizerSpecFromTekken(FileOf(golden, GetParam()));
  ASSERT_TRUE(spec.ok()) << Message(spec.status());
  const auto tokenizer = Tokenizer::Create(*spec);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  ASSERT_GE(golden["texts"].size(), 2000u);
  for (size_t i = 0; i < golden["texts"].size(); ++i) {
    const auto text = golden["texts"][i].get<std::string>();
    const std::vector<TokenId> tokens = tokenizer->Encode(text, {.add_special = true});
    EXPECT_EQ(HashOf(tokens), expected["texts"][i].get<std::string>()) << golden["texts"][i];
    EXPECT_EQ(tokenizer->Decode(tokens, true), text);
  }
  const auto special = expected["special"].get<std::vector<std::string>>();
  for (size_t i = 0; i < special.size(); ++i) {
    EXPECT_EQ(tokenizer->Find(special[i]), static_cast<TokenId>(i));
    EXPECT_EQ(tokenizer->Encode(special[i], {.parse_special = true}),
              std::vector{static_cast<TokenId>(i)});
    EXPECT_GT(tokenizer->Encode(special[i], {}).size(), 1u)
        << "the text of users is not a special token";
  }
  EXPECT_EQ(tokenizer->vocab_size(), golden["config"]["default_vocab_size"]);
  EXPECT_EQ(spec->bos, 1);
  EXPECT_EQ(spec->eos, std::vector<TokenId>{2});
}

INSTANTIATE_TEST_SUITE_P(Files, TekkenGoldens, ::testing::Values("old", "new"));

// A file of two special tokens and the tokens a, b and ab.
ordered_json SmallFile() {
  return ordered_json::parse(R"({
    "config": {"pattern": ".", "default_vocab_size": 5, "default_num_special_tokens": 2},
    "special_tokens": [{"rank": 0, "token_str": "</s>"}],
    "vocab": [{"rank": 0, "token_bytes": "YQ=="}, {"rank": 1, "token_bytes": "Yg=="},
              {"rank": 2, "token_bytes": "YWI="}, {"rank": 3, "token_bytes": "YWJi"}]})");
}

std::string ErrorOf(const std::string& pointer, const ordered_json& value) {
  ordered_json file = SmallFile();
  file[ordered_json::json_pointer(pointer)] = value;
  return std::string(Message(TokenizerSpecFromTekken(file.dump()).status()));
}

TEST(TekkenTokenizer, TheModelHasTheFirstTokensOnly) {
  const auto spec = TokenizerSpecFromTekken(SmallFile().dump());
  ASSERT_TRUE(spec.ok()) << Message(spec.status());
  ASSERT_EQ(spec->pieces.size(), 5u);
  EXPECT_EQ(spec->pieces[1].bytes, "<SPECIAL_1>");
  EXPECT_EQ(spec->pieces[4].bytes, "ab");
  EXPECT_TRUE(spec->prefix.empty()) << "there is no <s>";
  EXPECT_EQ(spec->splits.at(0).regex, ".");
}

TEST(TekkenTokenizer, BadFilesAreErrorsThatNameTheField) {
  EXPECT_THAT(Message(TokenizerSpecFromTekken("{").status()), HasSubstr("tekken.json"));
  EXPECT_THAT(Message(TokenizerSpecFromTekken("[]").status()), HasSubstr("config."));
  EXPECT_THAT(ErrorOf("/config/pattern", 1), HasSubstr("config.pattern must be a text"));
  EXPECT_THAT(ErrorOf("/config/default_num_special_tokens", -1),
              HasSubstr("config.default_num_special_tokens is -1; it must be a number from 0"));
  EXPECT_THAT(ErrorOf("/config/default_vocab_size", 2), HasSubstr("a number from 3 to"));
  EXPECT_THAT(ErrorOf("/config/default_vocab_size", 1e9), HasSubstr("default_vocab_size is 1"));
  EXPECT_THAT(ErrorOf("/config/default_vocab_size", UINT64_MAX), HasSubstr("to 4194304"));
  EXPECT_THAT(ErrorOf("/config/default_vocab_size", ordered_json::object()), HasSubstr("object"));
  EXPECT_THAT(ErrorOf("/config/default_vocab_size", 7),
              HasSubstr("vocab has 4 tokens; the config says that there are 5"));
  EXPECT_THAT(ErrorOf("/vocab", "x"), HasSubstr("vocab has 0 tokens"));
  EXPECT_THAT(ErrorOf("/vocab/1/token_bytes", "%%%%"), HasSubstr("vocab[1].token_bytes must be"));
  EXPECT_THAT(ErrorOf("/vocab/1/token_bytes", ""), HasSubstr("vocab[1].token_bytes must be"));
  EXPECT_THAT(ErrorOf("/vocab/1/rank", 2), HasSubstr("vocab[1] must have rank 1"));
  EXPECT_THAT(ErrorOf("/special_tokens", 3), HasSubstr("special_tokens must be a list"));
  for (const char* bad : {R"({"rank":2,"token_str":"x"})",
                          R"({"rank":-1,"token_str":"x"})",
                          R"({"rank":0,"token_str":"x"})",
                          R"({"rank":1,"token_str":""})",
                          R"({"rank":1})",
                          "7"}) {
    EXPECT_THAT(ErrorOf("/special_tokens/1", ordered_json::parse(bad)),
                HasSubstr("special_tokens[1] must have a token_str, and a rank below 2"))
        << bad;
  }
}

}  // namespace
}  // namespace baton
