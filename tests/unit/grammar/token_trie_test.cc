#include "common/grammar/xgrammar/token_trie.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "common/text/utf8.h"

namespace baton {
namespace {

const std::vector<std::string> kTexts = {
    "b", "ab", "", "a", "abc", "\xc3\xa9", "\xc3", "a\"b", "b", "\xa9x", "\"", "abd\xe4\xb8\xad"};

bool IsOf(TextClass text_class, std::string_view text) {
  return IsValidUtf8(text) && std::ranges::all_of(text, [&](char c) {
           const auto byte = static_cast<uint8_t>(c);
           return byte >= 0x80 ? text_class == TextClass::kPlain : IsInClass(text_class, byte);
         });
}

int CharactersOf(std::string_view text) {
  return static_cast<int>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

TEST(TokenTrie, HasEachTextWhereItBelongs) {
  const TokenTrie trie = TokenTrie::Make(kTexts);
  ASSERT_EQ(trie.tokens(), 11);
  EXPECT_EQ(trie.numbers[2], -1) << "no text";
  std::string_view before;
  for (int32_t token = 0; token < trie.tokens(); ++token) {
    const auto id = static_cast<size_t>(trie.ids[static_cast<size_t>(token)]);
    EXPECT_EQ(trie.text(token), kTexts[id]);
    EXPECT_EQ(trie.numbers[id], token);
    EXPECT_LE(before, trie.text(token));
    before = trie.text(token);
    for (int32_t other = token; other < trie.tokens(); ++other) {
      EXPECT_EQ(other < trie.subtree[static_cast<size_t>(token)],
                trie.text(other).starts_with(trie.text(token)));
    }
  }
}

// The texts of the nodes, and what is said of them, against a search of all texts.
void ExpectRightClass(const TokenTrie& trie, TextClass text_class) {
  const TokenTrie::Class& tokens = trie.of(text_class);
  std::vector<std::pair<std::string, int32_t>> path = {{"", trie.nodes()}};
  int known = 0;
  for (int32_t node = 0; node < trie.nodes(); ++node) {
    const auto at = static_cast<size_t>(node);
    while (path.back().second <= node) path.pop_back();
    if (node > 0) {
      path.emplace_back(path.back().first + static_cast<char>(trie.byte[at]), trie.end[at]);
    }
    const std::string text = path.back().first;
    bool all = true;
    int longest = 0;
    int below = 0;
    for (const std::string& one : kTexts) {
      if (one.empty() || !one.starts_with(text)) continue;
      ++below;
      const std::string rest = one.substr(text.size());
      all = all && IsOf(text_class, rest);
      longest = std::max(longest, CharactersOf(rest));
    }
    EXPECT_EQ(trie.first[static_cast<size_t>(trie.end[at])] - trie.first[at], below) << text;
    EXPECT_EQ(tokens.whole[at], IsOf(text_class, text)) << text;
    if (tokens.rest[at] == TokenTrie::Class::kOther) continue;
    ++known;
    EXPECT_TRUE(all) << text;
    EXPECT_EQ(tokens.rest[at], longest) << text;
  }
  EXPECT_GE(known, 8);
  int longest = 0;
  for (size_t id = 0; id < kTexts.size(); ++id) {
    const bool whole = !kTexts[id].empty() && IsOf(text_class, kTexts[id]);
    EXPECT_EQ((tokens.tokens[0] >> id & 1) != 0, whole) << id;
    if (whole) longest = std::max(longest, CharactersOf(kTexts[id]));
  }
  EXPECT_EQ(tokens.longest, longest);
  ASSERT_EQ(tokens.up_to.size(), static_cast<size_t>(longest) + 1);
  for (int n = 0; n <= longest; ++n) {
    const auto most = [&](TokenId id) {
      return CharactersOf(kTexts[static_cast<size_t>(id)]) <= n;
    };
    EXPECT_EQ(static_cast<size_t>(std::ranges::count_if(tokens.by_length, most)),
              tokens.up_to[static_cast<size_t>(n)]);
    EXPECT_TRUE(std::ranges::is_partitioned(tokens.by_length, most));
  }
}

TEST(TokenTrie, KnowsTheTokensOfAClass) {
  const TokenTrie trie = TokenTrie::Make(kTexts);
  for (const TextClass text_class : kAllTextClasses) ExpectRightClass(trie, text_class);
}

}  // namespace
}  // namespace baton
