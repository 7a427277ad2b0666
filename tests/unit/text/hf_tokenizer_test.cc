#include "common/text/hf_tokenizer.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/text/detokenizer.h"
#include "common/text/tokenizer.h"
#include "common/text/utf8.h"
#include "tests/unit/text/smollm2.h"

namespace baton {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

StatusOr<Tokenizer> Load(const ordered_json& tokenizer) {
  auto spec = TokenizerSpecFromJson(tokenizer.dump(), "");
  if (!spec.ok()) return spec.status();
  return Tokenizer::Create(*std::move(spec));
}

std::string Streamed(const Tokenizer& tokenizer,
                     const std::vector<TokenId>& tokens,
                     bool skip_special) {
  Detokenizer detokenizer(tokenizer, {.skip_special = skip_special});
  std::string text;
  for (const TokenId token : tokens) {
    const std::string part = detokenizer.Append(token);
    EXPECT_TRUE(IsValidUtf8(part));
    text += part;
  }
  return text + detokenizer.Flush();
}

class HfGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(HfGolden, TokensAndTextAreTheReferences) {
  const auto golden = ReadTestJson(std::string("hf/") + GetParam() + ".json");
  const auto tokenizer = Load(golden["tokenizer"]);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  for (const auto& one : golden["cases"]) {
    const auto text = one["text"].get<std::string>();
    const auto ids = one["ids"].get<std::vector<TokenId>>();
    const auto plain = one["plain"].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer->Encode(text, {.add_special = true, .parse_special = true}), ids)
        << one["text"];
    EXPECT_EQ(tokenizer->Encode(text, {}), plain) << one["text"];
    if (!one["decoded"].is_null()) {  // tests/data/text/README.md
      EXPECT_EQ(Streamed(*tokenizer, ids, true), one["decoded"].get<std::string>()) << one["text"];
    }
    EXPECT_EQ(Streamed(*tokenizer, plain, false), one["decoded_all"].get<std::string>())
        << one["text"];
  }
  EXPECT_GT(golden["cases"].size(), 150u);
}

// A special token that is searched after normalising follows the same rules of trust as others.
TEST_P(HfGolden, NormalizedSpecialTokensCountWhereTheTextIsTrusted) {
  const auto golden = ReadTestJson(std::string("hf/") + GetParam() + ".json");
  const auto tokenizer = Load(golden["tokenizer"]);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  const std::optional<TokenId> end = tokenizer->Find("<\u03a9nd>");
  ASSERT_TRUE(end.has_value());
  const auto count = [&](const std::vector<TextSegment>& segments) {
    const auto tokens = tokenizer->EncodeSegments(segments, false);
    return std::count(tokens.begin(), tokens.end(), *end);
  };
  // The token begins the text, because some normalisers prepend to a text, and so to the token.
  const std::string text = "<\u03a9nd>";
  EXPECT_EQ(count({{text, true}}), 1);
  EXPECT_EQ(count({{text, false}}), 0);
  EXPECT_EQ(count({{text, true}, {" user " + text + " e\u0301\u0301", false}}), 1);
  const auto& normalizer = golden["tokenizer"]["normalizer"];
  const bool composes = normalizer.is_object() && normalizer["type"].get<std::string>()[0] == 'N';
  EXPECT_EQ(count({{text, true}, {"\u0338 x", false}}), composes ? 0 : 1) << "'>' became U+226F";
  EXPECT_EQ(count({{"<\u03a9nd", true}, {">", false}}), 0) << "its end is the user's";
  EXPECT_EQ(count({{"<", false}, {"\u03a9nd>", true}}), 0) << "its beginning is the user's";
  EXPECT_EQ(count({{text, true}, {text, false}, {"<s>", true}, {text, false}, {"</s>", true}}), 1);
  // A text in several trusted parts gives the same tokens as in one part.
  for (const auto& one : golden["cases"]) {
    const auto whole = one["text"].get<std::string>();
    std::vector<TextSegment> parts;
    for (size_t at = 0; at < whole.size();) {
      size_t next = std::min(whole.size(), at + 5);
      while (next < whole.size() && (static_cast<uint8_t>(whole[next]) & 0xC0) == 0x80) ++next;
      parts.push_back({whole.substr(at, next - at), true});
      at = next;
    }
    EXPECT_EQ(tokenizer->EncodeSegments(parts, true), one["ids"].get<std::vector<TokenId>>());
  }
}

INSTANTIATE_TEST_SUITE_P(Pipelines,
                         HfGolden,
                         ::testing::Values("gpt2",
                                           "gpt2_prefix_space",
                                           "smollm",
                                           "llama3",
                                           "qwen2",
                                           "tekken",
                                           "odd_regex",
                                           "llama2",
                                           "mistral",
                                           "no_fallback"));

// GGUF files have a SentencePiece model's scores instead of merges. Both must give the same tokens.
TEST(GgufTokenizer, ScoresGiveTheSameTokensAsMerges) {
  const auto golden = ReadTestJson("hf/llama2.json");
  const auto& json = golden["tokenizer"];
  GgufTokenizerFields fields;
  fields.model = "llama";
  const auto& vocab = json["model"]["vocab"];
  fields.tokens.resize(vocab.size());
  fields.scores.resize(vocab.size());
  fields.token_types.assign(vocab.size(), 1);
  for (const auto& [text, id] : vocab.items()) {
    const auto index = id.get<size_t>();
    fields.tokens[index] = text;
    if (text.starts_with("<0x")) fields.token_types[index] = 6;
    fields.scores[index] = -1e6F;
  }
  fields.token_types[0] = 2;
  fields.token_types[1] = fields.token_types[2] = 3;
  float score = 0;
  for (const auto& merge : json["model"]["merges"]) {
    const std::string result = merge[0].get<std::string>() + merge[1].get<std::string>();
    fields.scores[vocab[result].get<size_t>()] = score--;
  }
  fields.bos_token_id = 1;
  fields.eos_token_id = 2;
  fields.unknown_token_id = 0;
  auto spec = TokenizerSpecFromGguf(fields);
  ASSERT_TRUE(spec.ok()) << Message(spec.status());
  const auto tokenizer = Tokenizer::Create(*std::move(spec));
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  int compared = 0;
  for (const auto& one : golden["cases"]) {
    const auto text = one["text"].get<std::string>();
    const bool added = text.find('<') != std::string::npos ||
                       text.find("word") != std::string::npos ||
                       text.find("Ωmega") != std::string::npos;
    if (added) continue;  // the added tokens are not in this vocabulary
    EXPECT_EQ(tokenizer->Encode(text, {}), one["plain"].get<std::vector<TokenId>>()) << text;
    ++compared;
  }
  EXPECT_GT(compared, 50);
}

TEST(HfTokenizer, ConfigNamesTheSpecialTokens) {
  const auto golden = ReadTestJson("hf/llama3.json");
  const auto spec = TokenizerSpecFromJson(
      golden["tokenizer"].dump(),
      R"({"bos_token":"<s>","eos_token":{"content":"</s>"},"pad_token":null})");
  ASSERT_TRUE(spec.ok());
  ASSERT_TRUE(spec->bos.has_value());
  EXPECT_EQ(spec->pieces[static_cast<size_t>(*spec->bos)].bytes, "<s>");
  ASSERT_EQ(spec->eos.size(), 1u);
  EXPECT_EQ(spec->pieces[static_cast<size_t>(spec->eos[0])].bytes, "</s>");
  EXPECT_FALSE(spec->padding.has_value());
}

TEST(HfTokenizer, BadFilesAreErrorsThatNameTheField) {
  const auto golden = ReadTestJson("hf/gpt2.json");
  const auto message = [&](const std::function<void(ordered_json&)>& change) {
    ordered_json broken = golden["tokenizer"];
    change(broken);
    return std::string(Message(Load(broken).status()));
  };
  using J = ordered_json;
  EXPECT_THAT(message([](J& j) { j["model"]["type"] = "WordPiece"; }), HasSubstr("'WordPiece'"));
  EXPECT_THAT(message([](J& j) { j["model"]["vocab"] = 3; }), HasSubstr("model.vocab"));
  EXPECT_THAT(message([](J& j) { j["model"]["vocab"]["x"] = -5; }),
              HasSubstr("the id of 'x' is -5"));
  EXPECT_THAT(message([](J& j) { j["model"]["vocab"]["x"] = 16000000; }),
              HasSubstr("'x' has id 16000000"));
  EXPECT_THAT(message([](J& j) { j["model"]["vocab"]["x"] = 1e300; }), HasSubstr("the id of 'x'"));
  EXPECT_THAT(message([](J& j) { j["model"]["merges"][7] = "zz yy"; }),
              HasSubstr("model.merges[7]"));
  EXPECT_THAT(message([](J& j) { j["model"]["merges"][7] = 4; }), HasSubstr("model.merges[7]"));
  EXPECT_THAT(message([](J& j) {
                j["normalizer"] = {{"type", "BertNormalizer"}};
              }),
              HasSubstr("'BertNormalizer'"));
  EXPECT_THAT(message([](J& j) {
                j["pre_tokenizer"] = {{"type", "Whitespace"}};
              }),
              HasSubstr("'Whitespace'"));
  EXPECT_THAT(message([](J& j) {
                j["decoder"] = {{"type", "WordPiece"}};
              }),
              HasSubstr("'WordPiece'"));
  EXPECT_THAT(message([](J& j) { j["added_tokens"][0]["id"] = 99999999; }),
              HasSubstr("the id of '<s>'"));
  EXPECT_THAT(message([](J& j) {
                j["pre_tokenizer"] = {
                    {"type", "Split"}, {"pattern", {{"Regex", "(("}}}, {"behavior", "Isolated"}};
              }),
              HasSubstr("split pattern '(('"));
  EXPECT_FALSE(TokenizerSpecFromJson("{", "").ok());
  EXPECT_FALSE(TokenizerSpecFromJson("[]", "").ok());
  EXPECT_FALSE(TokenizerSpecFromJson(golden["tokenizer"].dump(), "nonsense").ok());
}

}  // namespace
}  // namespace baton
