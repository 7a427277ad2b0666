#include "common/text/tokenizer.h"

#include <functional>
#include <random>
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

TEST_F(SmolLm2, AnyBytesAreTokenised) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (size_t i = random() % 30; i > 0; --i) bytes.push_back(static_cast<char>(random() % 256));
    const auto tokens = Encode(bytes, true);
    EXPECT_EQ(tokens, Encode(ReplaceInvalidUtf8(bytes), true));
    EXPECT_TRUE(IsValidUtf8(tokenizer_->Decode(tokens, false)));
  }
}

TEST_F(SmolLm2, LongRunsTakeTimeInProportion) {
  // Quadratic merging would take hours here.
  EXPECT_EQ(tokenizer_->Decode(Encode(std::string(3'000'000, 'a')), false).size(), 3'000'000u);
  EXPECT_EQ(tokenizer_->Decode(Encode(std::string(3'000'000, ' ')), false).size(), 3'000'000u);
  EXPECT_EQ(tokenizer_->Decode(Encode(std::string(300'000, '<')), false).size(), 300'000u);
}

TEST_F(SmolLm2, ShortAndLongPiecesMergeAlike) {
  // The same letters in pieces below and above the length at which the merge method changes.
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::string word;
    for (int i = 0; i < 40; ++i) word.push_back(static_cast<char>('a' + random() % 6));
    const auto alone = Encode(word);
    // U+200D is in another class than letters, so that it starts a new piece.
    const auto joined = Encode(word + "\xE2\x80\x8D" + word);
    ASSERT_GE(joined.size(), alone.size());
    const auto separate = Encode("\xE2\x80\x8D" + word);
    std::vector<TokenId> expected = alone;
    expected.insert(expected.end(), separate.begin(), separate.end());
    EXPECT_EQ(joined, expected);
  }
}

TEST_F(SmolLm2, DetokenizerNeverSplitsACharacter) {
  const std::string text =
      "h\xC3\xA9llo \xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9 "
      "\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E";
  Detokenizer detokenizer(*tokenizer_, {});
  std::string all;
  int held_back = 0;
  for (const TokenId token : Encode(text)) {
    const std::string part = detokenizer.Append(token);
    EXPECT_TRUE(IsValidUtf8(part));
    held_back += part.empty() ? 1 : 0;
    all += part;
  }
  EXPECT_GT(held_back, 3);
  EXPECT_EQ(all + detokenizer.Flush(), text);
}

TEST_F(SmolLm2, DetokenizerFlushesHalfACharacterAsReplacement) {
  const auto tokens = Encode("\xF0\x9F\x91\xA8");
  ASSERT_GT(tokens.size(), 1u);
  Detokenizer detokenizer(*tokenizer_, {});
  EXPECT_EQ(detokenizer.Append(tokens[0]), "");
  EXPECT_EQ(detokenizer.Flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(tokenizer_->Decode(std::vector<TokenId>{-1, 1 << 30, tokens[0]}, false),
            "\xEF\xBF\xBD");
}

TEST_F(SmolLm2, SpecialTokensAreSkippedOrShown) {
  const auto tokens = Encode("<|im_start|>hi<|im_end|>", true);
  EXPECT_THAT(tokens, ElementsAre(1, 6004, 2));
  EXPECT_EQ(tokenizer_->Decode(tokens, true), "hi");
  EXPECT_EQ(tokenizer_->Decode(tokens, false), "<|im_start|>hi<|im_end|>");
  EXPECT_EQ(tokenizer_->Find("<|im_end|>"), 2);
  EXPECT_FALSE(tokenizer_->Find("no such piece at all").has_value());
}

// What tokenizers 0.23 decodes for the same tokenizer.json.
TEST(Detokenizer, AnAddedTokenThatIsNormalisedKeepsTheSpaceBeforeIt) {
  TokenizerSpec spec;
  spec.alphabet = BpeAlphabet::kCharacters;
  spec.strip_first_space = true;
  spec.normalizer = {{NormalizerStep::Kind::kPrepend, "", "▁"},
                     {NormalizerStep::Kind::kReplace, " ", "▁"}};
  for (const char* bytes : {"<unk>", "▁", "a", "▁a", "</think>"}) {
    spec.pieces.push_back({bytes, PieceKind::kNormal});
  }
  spec.unknown = 0;
  spec.merges = {{1, 2, 3, 0}};
  spec.added = {{.id = 4, .text = "</think>", .normalized = true}};
  const Tokenizer tokenizer = Tokenizer::Create(spec).value();
  EXPECT_THAT(tokenizer.Encode("a </think>", {}), ElementsAre(3, 4));
  EXPECT_EQ(tokenizer.Decode(std::vector<TokenId>{3, 4}, false), "a </think>");
  EXPECT_EQ(tokenizer.Decode(std::vector<TokenId>{4}, false), "</think>");
  EXPECT_EQ(tokenizer.piece(4), "</think>");
}

TEST(GgufTokenizer, ContradictionsAreErrorsThatNameTheKey) {
  const auto message = [](const std::function<void(GgufTokenizerFields&)>& change) {
    GgufTokenizerFields fields = SmolLm2Fields();
    change(fields);
    auto spec = TokenizerSpecFromGguf(fields);
    if (!spec.ok()) return std::string(Message(spec.status()));
    return std::string(Message(Tokenizer::Create(*std::move(spec)).status()));
  };
  using F = GgufTokenizerFields;
  EXPECT_THAT(message([](F& f) { f.model = "bert"; }), HasSubstr("tokenizer.ggml.model is 'bert'"));
  EXPECT_THAT(message([](F& f) { f.pre = "odd"; }), HasSubstr("tokenizer.ggml.pre is 'odd'"));
  EXPECT_THAT(message([](F& f) { f.token_types.pop_back(); }),
              HasSubstr("token_type has 49151 values"));
  EXPECT_THAT(message([](F& f) { f.token_types[3] = 9; }), HasSubstr("token_type[3] is 9"));
  EXPECT_THAT(message([](F& f) { f.token_types[300] = 6; }),
              HasSubstr("tokens[300] is a byte named"));
  EXPECT_THAT(message([](F& f) { f.merges[5] = "nospace"; }), HasSubstr("merges[5] is 'nospace'"));
  EXPECT_THAT(message([](F& f) { f.bos_token_id = 1 << 20; }),
              HasSubstr("bos_token_id is 1048576"));
  EXPECT_THAT(message([](F& f) { f.eos_token_id = -1; }), HasSubstr("eos_token_id is -1"));
  EXPECT_THAT(message([](F& f) {
                f = {};
                f.model = "gpt2";
              }),
              HasSubstr("has 0 pieces"));
  EXPECT_THAT(message([](F& f) { f.model = "llama"; }), HasSubstr("scores has 0 values"));
}

}  // namespace
}  // namespace baton
