#include "common/text/sentencepiece_tokenizer.h"

#include <string>
#include <vector>

#include <absl/strings/escaping.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/text/hf_tokenizer.h"
#include "common/text/sentencepiece.pb.h"
#include "common/text/tokenizer.h"
#include "tests/unit/text/smollm2.h"
#include "tests/unit/text/token_hash.h"

namespace baton {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using Model = sentencepiece::Model;

std::string FileOf(const ordered_json& golden) {
  std::string file;
  EXPECT_TRUE(absl::Base64Unescape(golden["model"].get<std::string>(), &file));
  return file;
}

std::string ErrorOf(const std::string& file, const std::string& config = "") {
  return std::string(Message(TokenizerSpecFromSentencePiece(file, config).status()));
}

std::string HashOfText(std::string_view text) {
  std::vector<TokenId> bytes;
  for (const char c : text) bytes.push_back(static_cast<uint8_t>(c));
  return HashOf(bytes);
}

class SentencePieceGoldens : public ::testing::TestWithParam<const char*> {};

TEST_P(SentencePieceGoldens, TokensAndTextAreThoseOfSentencePiece) {
  const auto document = ReadTestJson("sentencepiece.json");
  const auto& golden = document["files"][GetParam()];
  const auto spec = TokenizerSpecFromSentencePiece(FileOf(golden), "");
  ASSERT_TRUE(spec.ok()) << Message(spec.status());
  const auto tokenizer = Tokenizer::Create(*spec);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  ASSERT_GE(document["texts"].size(), 2000u);
  for (size_t i = 0; i < document["texts"].size(); ++i) {
    const auto text = document["texts"][i].get<std::string>();
    const std::vector<TokenId> tokens = tokenizer->Encode(text, {});
    EXPECT_EQ(HashOf(tokens), golden["ids"][i].get<std::string>()) << document["texts"][i];
    if (i >= golden["decoded"].size()) continue;
    EXPECT_EQ(HashOfText(tokenizer->Decode(tokens, false)), golden["decoded"][i].get<std::string>())
        << document["texts"][i] << " gives " << tokenizer->Decode(tokens, false);
  }
  EXPECT_EQ(spec->prefix, std::vector<TokenId>{1});
  EXPECT_EQ(spec->eos, std::vector<TokenId>{2});
}

INSTANTIATE_TEST_SUITE_P(Models,
                         SentencePieceGoldens,
                         ::testing::Values("bpe",
                                           "bpe_no_prefix",
                                           "bpe_unknown",
                                           "bpe_rules",
                                           "unigram",
                                           "unigram_rules",
                                           "unigram_rules_no_prefix",
                                           "unigram_across_words"));

class UnigramGoldens : public ::testing::TestWithParam<const char*> {};

TEST_P(UnigramGoldens, TokensOfTheirTokenizerJsonAreThoseOfHuggingFace) {
  const auto document = ReadTestJson("sentencepiece.json");
  const auto& golden = document["files"][GetParam()];
  const auto spec = TokenizerSpecFromJson(golden["json"].dump(), "");
  ASSERT_TRUE(spec.ok()) << Message(spec.status());
  const auto tokenizer = Tokenizer::Create(*spec);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  for (size_t i = 0; i < document["texts"].size(); ++i) {
    const auto text = document["texts"][i].get<std::string>();
    const std::vector<TokenId> tokens = tokenizer->Encode(text, {.parse_special = true});
    EXPECT_EQ(HashOf(tokens), golden["json_ids"][i].get<std::string>()) << document["texts"][i];
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         UnigramGoldens,
                         ::testing::Values("unigram",
                                           "unigram_rules",
                                           "unigram_rules_no_prefix",
                                           "unigram_across_words"));

class SentencePiece : public ::testing::Test {
 protected:
  void SetUp() override {
    file_ = FileOf(ReadTestJson("sentencepiece.json")["files"]["unigram_rules"]);
    ASSERT_TRUE(model_.ParseFromString(file_));
  }

  std::string file_;
  Model model_;
};

TEST_F(SentencePiece, ConfigNamesFurtherSpecialTokens) {
  const std::string next = std::to_string(model_.pieces_size());
  const auto spec = TokenizerSpecFromSentencePiece(
      file_,
      R"({"add_bos_token":false,"eos_token":"<tool>","added_tokens_decoder":{")" + next +
          R"(":{"content":"<|end|>","special":true}}})");
  ASSERT_TRUE(spec.ok()) << Message(spec.status());
  EXPECT_TRUE(spec->prefix.empty());
  EXPECT_EQ(spec->pieces.back().bytes, "<|end|>");
  EXPECT_EQ(spec->pieces[static_cast<size_t>(spec->eos.at(0))].bytes, "<tool>");
  const auto tokenizer = Tokenizer::Create(*spec);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  const auto end = static_cast<TokenId>(model_.pieces_size());
  EXPECT_THAT(tokenizer->Encode("a<|end|>", {.parse_special = true}), ::testing::Contains(end));
  EXPECT_THAT(tokenizer->Encode("a<|end|>", {}), ::testing::Not(::testing::Contains(end)));
}

TEST_F(SentencePiece, BrokenFilesAreRefused) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("0 bytes that are no model of SentencePiece"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("no model of SentencePiece"));
  EXPECT_THAT(ErrorOf(file_, "{"), HasSubstr("tokenizer_config.json"));
  // The beginning of a file is refused, or it is a file with fewer pieces.
  for (size_t size = 0; size < file_.size(); ++size) ErrorOf(file_.substr(0, size));
}

TEST_F(SentencePiece, WhatWouldChangeTokensIsRefusedByName) {
  const auto error = [&](const auto& change) {
    Model model = model_;
    change(model);
    return ErrorOf(model.SerializeAsString());
  };
  using sentencepiece::Trainer;
  EXPECT_THAT(error([](Model& m) { m.mutable_trainer_spec()->set_model_type(Trainer::WORD); }),
              HasSubstr("trainer_spec.model_type is 3, which is not supported; it must be 1"));
  EXPECT_THAT(
      error([](Model& m) { m.mutable_trainer_spec()->set_treat_whitespace_as_suffix(true); }),
      HasSubstr("treat_whitespace_as_suffix is true"));
  EXPECT_THAT(error([](Model& m) { m.mutable_normalizer_spec()->set_escape_whitespaces(false); }),
              HasSubstr("escape_whitespaces is false"));
  EXPECT_THAT(error([](Model& m) { m.mutable_trainer_spec()->set_bos_id(1 << 20); }),
              HasSubstr("trainer_spec.bos_id is 1048576; it must be less than"));
  EXPECT_THAT(error([](Model& m) {
                m.mutable_normalizer_spec()->set_precompiled_charsmap("\x03\0\0\0abc");
              }),
              HasSubstr("precompiled_charsmap: a trie of"));
}

TEST(Unigram, BadVocabulariesAreErrorsThatNameTheField) {
  const auto error = [](const std::string& model) {
    const std::string json = R"({"model":{"type":"Unigram",)" + model + "}}";
    const auto spec = TokenizerSpecFromJson(json, "");
    if (!spec.ok()) return std::string(Message(spec.status()));
    return std::string(Message(Tokenizer::Create(*spec).status()));
  };
  EXPECT_EQ(error(R"("unk_id":0,"vocab":[["<unk>",0],["a",-1]])"), "");
  EXPECT_EQ(error(R"("unk_id":null,"vocab":[["a",-1]])"), "");
  EXPECT_THAT(error(R"("vocab":{})"), HasSubstr("model.vocab must be a list of 1 to"));
  EXPECT_THAT(error(R"("vocab":[])"), HasSubstr("model.vocab must be a list of 1 to"));
  EXPECT_THAT(error(R"("vocab":[["a",-1],["b"]])"), HasSubstr("model.vocab[1] must be a piece"));
  EXPECT_THAT(error(R"("vocab":[["a",-1],[7,1]])"), HasSubstr("model.vocab[1] must be a piece"));
  EXPECT_THAT(error(R"("unk_id":1,"vocab":[["a",-1]])"),
              HasSubstr("model.unk_id is 1; it must be less than 1"));
  EXPECT_THAT(error(R"("unk_id":"a","vocab":[["a",-1]])"), HasSubstr("unk_id"));
}

TEST(Unigram, AnEncodingEndsWhenItIsCancelled) {
  TokenizerSpec spec;
  spec.model = TokenModel::kUnigram;
  spec.alphabet = BpeAlphabet::kCharacters;
  spec.pieces = {{"a"}, {"aa"}};
  spec.scores = {-1, -1.5};
  const auto tokenizer = Tokenizer::Create(spec);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  // Longer than a window.
  const std::string text(3'000'001, 'a');
  EXPECT_EQ(tokenizer->Encode(text, {}).size(), 1'500'001u);
  int calls = 0;
  tokenizer->Encode(text, {}, {.cancelled = [&] { return ++calls > 0; }});
  EXPECT_LE(calls, 4) << "a call for each window, at most";
  EXPECT_GE(calls, 1);
}

}  // namespace
}  // namespace baton
