#include "common/text/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "common/text/unicode_class.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

// \w of the Rust library that Hugging Face's tokenizers use (Unicode Technical Standard 18, annex
// C).
bool IsWordCharacter(char32_t c) {
  constexpr CharClass kLetterOrMark = kLetter | kUpperLike | kLowerLike;
  if (UnicodeClasses().Of(c) & kLetterOrMark) return true;
  if (c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9)) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_PC;
}

// The start of the character that ends at `end` > 0 of valid UTF-8.
size_t CharacterBefore(std::string_view text, size_t end) {
  do {
    --end;
  } while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return end;
}

size_t SkipSpacesLeft(std::string_view text, size_t begin, size_t lowest) {
  while (begin > lowest) {
    const size_t before = CharacterBefore(text, begin);
    if (!IsUnicodeSpace(DecodeUtf8(text, before).value)) break;
    begin = before;
  }
  return std::max(begin, lowest);
}

size_t SkipSpacesRight(std::string_view text, size_t end) {
  while (end < text.size()) {
    const CodePoint c = DecodeUtf8(text, end);
    if (!IsUnicodeSpace(c.value)) break;
    end += c.length;
  }
  return end;
}

bool IsInside(TextRange inner, std::span<const TextRange> ranges) {
  const auto after = std::upper_bound(
      ranges.begin(), ranges.end(), inner.begin, [](size_t pos, const TextRange& r) {
        return pos < r.begin;
      });
  return after != ranges.begin() && std::prev(after)->end >= inner.end;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.text.empty(); });
  token_at_.push_back(-1);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    uint64_t node = 0;
    for (const char c : tokens_[i].text) {
      const auto next = static_cast<uint32_t>(token_at_.size());
      const auto [edge, added] = edges_.try_emplace(node << 8 | static_cast<uint8_t>(c), next);
      if (added) token_at_.push_back(-1);
      node = edge->second;
    }
    if (token_at_[node] < 0) token_at_[node] = static_cast<int>(i);
    starts_[static_cast<uint8_t>(tokens_[i].text[0])] = true;
  }
}

int AddedTokenFinder::Longest(std::string_view text, size_t pos) const {
  int longest = -1;
  uint64_t node = 0;
  for (; pos < text.size(); ++pos) {
    const auto edge = edges_.find(node << 8 | static_cast<uint8_t>(text[pos]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (token_at_[node] >= 0) longest = token_at_[node];
  }
  return longest;
}

bool AddedTokenFinder::StandsAlone(std::string_view text, TextRange range) {
  if (range.begin > 0) {
    const size_t before = CharacterBefore(text, range.begin);
    if (IsWordCharacter(DecodeUtf8(text, before).value)) return false;
  }
  return range.end == text.size() || !IsWordCharacter(DecodeUtf8(text, range.end).value);
}

std::vector<AddedTokenFinder::Match> AddedTokenFinder::Find(std::string_view text,
                                                            Trust trust) const {
  std::vector<Match> matches;
  if (tokens_.empty()) return matches;
  size_t done = 0;
  for (size_t pos = 0; pos < text.size();) {
    const int index = starts_[static_cast<uint8_t>(text[pos])] ? Longest(text, pos) : -1;
    if (index < 0) {
      ++pos;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    TextRange range{pos, pos + token.text.size()};
    if (token.special && !trust.all && !IsInside(range, trust.ranges)) {
      // A trusted token may begin inside the refused text, so the search continues at the next
      // byte. When nothing is trusted, the whole refused text is skipped, as in Hugging Face's
      // tokenizers.
      pos = trust.ranges.empty() ? range.end : pos + 1;
      continue;
    }
    pos = range.end;
    if (token.single_word && !StandsAlone(text, range)) continue;
    if (token.lstrip) range.begin = SkipSpacesLeft(text, range.begin, done);
    if (token.rstrip) pos = range.end = SkipSpacesRight(text, range.end);
    done = range.end;
    matches.push_back({range, token.id});
  }
  return matches;
}

}  // namespace baton
