#include "common/text/bpe_encoder.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/text/tokenizer.h"

namespace baton {
namespace {

// All bytes as pieces, and merges of random pairs. Ranks repeat and do not grow with the length.
TokenizerSpec RandomSpec(std::mt19937& random, int merges) {
  TokenizerSpec spec;
  for (int byte = 0; byte < 256; ++byte) {
    spec.pieces.push_back({std::string(1, static_cast<char>(byte)), PieceKind::kNormal});
  }
  std::vector<TokenId> used = {'a', 'b', ' '};
  for (int i = 0; i < merges; ++i) {
    const TokenId left = used[random() % used.size()];
    const TokenId right = used[random() % used.size()];
    const auto result = static_cast<TokenId>(spec.pieces.size());
    spec.pieces.push_back({spec.pieces[static_cast<size_t>(left)].bytes +
                               spec.pieces[static_cast<size_t>(right)].bytes,
                           PieceKind::kNormal});
    spec.merges.push_back({left, right, result, static_cast<uint32_t>(random() % 8)});
    used.push_back(result);
  }
  return spec;
}

// BPE by its definition: joins the pair of lowest rank, of equal ranks the leftmost, until no pair
// can be joined.
std::vector<TokenId> Reference(const TokenizerSpec& spec, const std::string& text) {
  std::vector<TokenId> symbols;
  for (const char byte : text) symbols.push_back(static_cast<uint8_t>(byte));
  while (true) {
    const Merge* best = nullptr;
    size_t at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto same = std::find_if(spec.merges.begin(), spec.merges.end(), [&](const Merge& m) {
        return m.left == symbols[i] && m.right == symbols[i + 1];
      });
      if (same == spec.merges.end() || (best != nullptr && same->rank >= best->rank)) continue;
      best = &*same;
      at = i;
    }
    if (best == nullptr) return symbols;
    symbols[at] = best->result;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

TEST(BpeEncoder, MergesLongPiecesInTheOrderOfTheDefinition) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const TokenizerSpec spec = RandomSpec(random, 12);
    const BpeEncoder encoder(spec);
    for (const size_t length : {49, 60, 150, 301}) {
      std::string text;
      const bool runs = random() % 2 == 0;
      while (text.size() < length) {
        const char c = "ab "[random() % 3];
        text += std::string(runs ? 1 + random() % 40 : 1, c);
      }
      std::vector<TokenId> tokens;
      encoder.Encode(text, tokens);
      EXPECT_EQ(tokens, Reference(spec, text)) << "round " << round << ": " << text;
    }
  }
}

TEST(BpeEncoder, ALongPieceEndsWhenTheCallerHasLeft) {
  std::mt19937 random(5);
  const TokenizerSpec spec = RandomSpec(random, 12);
  const BpeEncoder encoder(spec);
  std::string text;
  while (text.size() < size_t{2} << 20) text += "ab "[random() % 3];
  std::vector<TokenId> tokens;
  int asked = 0;
  encoder.Encode(text, tokens, [&] { return ++asked == 2; });
  EXPECT_EQ(asked, 2);
}

class EncodeLimitsTest : public testing::Test {
 protected:
  static Tokenizer Make(TokenizerSpec spec) {
    spec.splits = {{.kind = SplitStep::Kind::kPattern, .pattern = PatternKind::kGpt2, .regex = ""}};
    return *Tokenizer::Create(std::move(spec));
  }
  std::mt19937 random_{5};
};

TEST_F(EncodeLimitsTest, EncodingEndsSoonAfterTheMostTokens) {
  const Tokenizer tokenizer = Make(RandomSpec(random_, 0));
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += "ab ";
  EXPECT_EQ(tokenizer.Encode(text, {}).size(), text.size());
  const size_t tokens =
      tokenizer.Encode(text, {}, {.max_tokens = 100, .cancelled = nullptr}).size();
  EXPECT_GT(tokens, 100u);
  EXPECT_LT(tokens, 110u);
  const TextSegment segments[] = {{text, true}};
  EXPECT_LT(
      tokenizer.EncodeSegments(segments, false, {.max_tokens = 100, .cancelled = nullptr}).size(),
      110u);
  int asked = 0;
  tokenizer.Encode(text, {}, {.cancelled = [&] { return ++asked == 3; }});
  EXPECT_EQ(asked, 3);
}

TEST_F(EncodeLimitsTest, MaxTokenBytesIsTheLongestTokensTextBeforeNormalising) {
  TokenizerSpec spec = RandomSpec(random_, 0);
  spec.pieces.push_back({std::string(9, 'a'), PieceKind::kNormal});
  EXPECT_EQ(Make(spec).max_token_bytes(), 9u);
  spec.normalizer = {{.kind = NormalizerStep::Kind::kNfkc, .from = "", .to = ""}};
  EXPECT_EQ(Make(spec).max_token_bytes(), 36u);
  spec.normalizer = {{.kind = NormalizerStep::Kind::kReplace, .from = "x", .to = ""}};
  EXPECT_EQ(Make(spec).max_token_bytes(), SIZE_MAX);  // any number of x gives no token
  spec.normalizer = {};
  spec.pieces[0].bytes = "other";  // the byte 0 is now unknown and left out
  EXPECT_EQ(Make(spec).max_token_bytes(), SIZE_MAX);
  spec.unknown = 1;
  EXPECT_EQ(Make(spec).max_token_bytes(), 9u);
}

}  // namespace
}  // namespace baton
