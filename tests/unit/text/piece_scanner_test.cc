#include "common/text/piece_scanner.h"

#include <utf8proc.h>

#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/text/pre_tokenizer.h"
#include "common/text/split_regex.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

bool Matches(const SplitRegex& regex, char32_t c) {
  std::string text = "\x01";
  AppendUtf8(text, c);
  std::vector<size_t> ends;
  regex.Split(text, 0, text.size(), ends);
  return ends.size() == 2;
}

// Characters that have the same classes in PCRE2's tables and in ours. Both follow Unicode, but not
// always the same version.
std::vector<char32_t> CommonCharacters() {
  const auto letter = SplitRegex::Compile(R"(\p{L})");
  const auto number = SplitRegex::Compile(R"(\p{N})");
  const auto space = SplitRegex::Compile(R"(\s)");
  const auto upper = SplitRegex::Compile(R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])");
  const auto lower = SplitRegex::Compile(R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])");
  const UnicodeClasses classes;
  std::vector<char32_t> common;
  int different = 0;
  for (char32_t c = 1; c < 0x20000; ++c) {
    if (c == 1 || (c >= 0xD800 && c <= 0xDFFF)) continue;
    const CharClass bits = classes.Of(c);
    const bool same = Matches(*letter, c) == bool(bits & kLetter) &&
                      Matches(*number, c) == bool(bits & kNumber) &&
                      Matches(*space, c) == bool(bits & kSpace) &&
                      Matches(*upper, c) == bool(bits & kUpperLike) &&
                      Matches(*lower, c) == bool(bits & kLowerLike);
    different += same ? 0 : 1;
    if (same) common.push_back(c);
  }
  EXPECT_LT(different, 400);  // letters that are new in one version
  return common;
}

std::string RandomText(std::mt19937& random, const std::vector<char32_t>& characters) {
  static const std::string kOften = "aZsTlLvVeErR d'\"  \t\n\r19.,-/_\xC5\xBF\xC3\xA9";
  std::string text;
  const size_t length = random() % 40;
  for (size_t i = 0; i < length; ++i) {
    switch (random() % 8) {
      case 0:
        AppendUtf8(text, characters[random() % characters.size()]);
        break;
      case 1:
        AppendUtf8(
            text,
            std::u32string_view(
                U"ǅʰª\u0301\u0345ΩжéÀß日ſK①٣\u00a0\u3000\u2028\u0085\u1680/")[random() % 21]);
        break;
      case 2:
        text += std::vector<std::string>{
            "'s", "'LL", "'ve", "  ", "\n\n", " \n ", "'\xC5\xBF", "123"}[random() % 8];
        break;
      default:
        AppendUtf8(text, static_cast<unsigned char>(kOften[random() % 28]));
    }
  }
  return text;
}

TEST(PieceScanner, EqualsThePublishedPatternOnRandomText) {
  const std::vector<char32_t> characters = CommonCharacters();
  std::mt19937 random(20261121);
  for (const PatternKind kind : {PatternKind::kGpt2,
                                 PatternKind::kSmolLm,
                                 PatternKind::kLlama3,
                                 PatternKind::kQwen2,
                                 PatternKind::kTekken}) {
    const std::string pattern(PublishedPattern(kind));
    std::vector<SplitStep> steps;
    if (kind == PatternKind::kSmolLm)
      steps.push_back({.kind = SplitStep::Kind::kDigits, .regex = ""});
    steps.push_back({.kind = SplitStep::Kind::kRegex, .regex = pattern});
    const auto oracle = PreTokenizer::Create(steps);
    ASSERT_TRUE(oracle.ok()) << Message(oracle.status());
    const PieceScanner scanner(kind);
    for (int round = 0; round < 20'000; ++round) {
      const std::string text = RandomText(random, characters);
      std::vector<size_t> ends;
      scanner.Split(text, 0, text.size(), ends);
      ASSERT_EQ(ends, oracle->Split(text)) << pattern << "\n" << testing::PrintToString(text);
    }
  }
}

TEST(SplitRegex, StretchesBetweenMatchesArePieces) {
  const auto regex = SplitRegex::Compile("[0-9]+");
  std::vector<size_t> ends;
  regex->Split("ab12cd3", 0, 7, ends);
  EXPECT_EQ(ends, (std::vector<size_t>{2, 4, 6, 7}));
}

TEST(SplitRegex, EndlessBacktrackingEndsInOnePiece) {
  const auto regex = SplitRegex::Compile("(a+)+$");
  const std::string text = std::string(40, 'a') + "b";
  std::vector<size_t> ends;
  regex->Split(text, 0, text.size(), ends);
  EXPECT_EQ(ends.back(), text.size());
}

// The pieces of `text` with `pattern`.
std::vector<std::string> Pieces(std::string_view pattern, std::string_view text) {
  const auto regex = SplitRegex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << Message(regex.status());
  std::vector<size_t> ends;
  regex->Split(text, 0, text.size(), ends);
  std::vector<std::string> pieces;
  for (size_t begin = 0; const size_t end : ends) {
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

TEST(SplitRegex, SetsAreThoseOfOniguruma) {
  using ::testing::ElementsAre;
  EXPECT_THAT(Pieces("[a-z&&[^aeiou]]+", "hello"), ElementsAre("h", "e", "ll", "o"));
  EXPECT_THAT(Pieces("[^a-z&&[^aeiou]]+", "hel1o"), ElementsAre("h", "e", "l", "1o"));
  EXPECT_THAT(Pieces("[ab[0-9]]+", "xa1bx"), ElementsAre("x", "a1b", "x"));
  EXPECT_THAT(Pieces("[^ab[0-9]]+", "xa1bx"), ElementsAre("x", "a1b", "x"));
  EXPECT_THAT(Pieces(R"([]\]]+)", "x]]y"), ElementsAre("x", "]]", "y"));
  EXPECT_THAT(Pieces("[[:digit:]a]+", "x1ay"), ElementsAre("x", "1a", "y"));
  EXPECT_THAT(Pieces(R"(.+?\b)", "a e\u0301"), ElementsAre("a", " ", "e\u0301"));
}

TEST(SplitRegex, BadPatternsAreNamed) {
  EXPECT_FALSE(SplitRegex::Compile("(").ok());
  for (const char* set : {"x[a", "[a&&", "[a[b]", "[[:digit]", "[", "[^", "[]", "[a&&[b]"}) {
    const auto regex = SplitRegex::Compile(set);
    EXPECT_THAT(Message(regex.status()), ::testing::HasSubstr("has no end")) << set;
  }
  EXPECT_THAT(Message(SplitRegex::Compile(std::string(1000, '[')).status()),
              ::testing::HasSubstr("nests more than 8 sets"));
  EXPECT_FALSE(SplitRegex::Compile(std::string(100'000, 'a')).ok());
}

}  // namespace
}  // namespace baton
