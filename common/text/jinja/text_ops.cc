#include "common/text/jinja/text_ops.h"

#include <utf8proc.h>

#include <algorithm>

#include "common/text/jinja/value_text.h"
#include "common/text/utf8.h"

namespace baton::jinja {
namespace {

bool IsAnyOf(std::string_view character, std::string_view set) {
  for (size_t pos = 0; pos < set.size();) {
    const size_t length = DecodeUtf8(set, pos).length;
    if (set.substr(pos, length) == character) return true;
    pos += length;
  }
  return false;
}

size_t PreviousCharacter(std::string_view text, size_t end) {
  do {
    --end;
  } while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return end;
}

void AppendUpper(std::string& out, char32_t c) {
  if (c == 0xDF) {
    out += "SS";
  } else {
    AppendUtf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void AppendLower(std::string& out, char32_t c) {
  AppendUtf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

bool IsUpper(char32_t c) {
  return utf8proc_tolower(static_cast<utf8proc_int32_t>(c)) != static_cast<utf8proc_int32_t>(c);
}
bool IsCased(char32_t c) {
  return IsUpper(c) ||
         utf8proc_toupper(static_cast<utf8proc_int32_t>(c)) != static_cast<utf8proc_int32_t>(c);
}

std::vector<MarkedText> SplitSpaces(const MarkedText& text, int64_t limit) {
  std::vector<MarkedText> parts;
  const std::string_view all = text.text();
  size_t pos = StripSpaces(all, true, false).first;
  while (pos < all.size()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text.Slice(pos, all.size()));
      break;
    }
    size_t end = pos;
    while (end < all.size()) {
      const CodePoint c = DecodeUtf8(all, end);
      if (IsPythonSpace(c.value)) break;
      end += c.length;
    }
    parts.push_back(text.Slice(pos, end));
    pos = end + StripSpaces(all.substr(end), true, false).first;
  }
  return parts;
}

std::vector<MarkedText> SplitSpacesFromRight(const MarkedText& text, int64_t limit) {
  std::vector<MarkedText> parts;
  const std::string_view all = text.text();
  size_t end = StripSpaces(all, false, true).second;
  while (end > 0) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text.Slice(0, end));
      break;
    }
    size_t begin = end;
    while (begin > 0) {
      const size_t before = PreviousCharacter(all, begin);
      if (IsPythonSpace(DecodeUtf8(all, before).value)) break;
      begin = before;
    }
    parts.push_back(text.Slice(begin, end));
    end = StripSpaces(all.substr(0, begin), false, true).second;
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

StatusOr<MarkedText> Replace(const MarkedText& text,
                             const MarkedText& from,
                             const MarkedText& to,
                             int64_t count,
                             Budget& budget) {
  BATON_RETURN_IF_ERROR(budget.SpendOnBytes(text.size()));
  const std::string& all = text.text();
  MarkedText out;
  size_t done = 0;
  size_t look = 0;
  while (count != 0) {
    const size_t found = all.find(from.text(), look);
    if (found == std::string::npos || found > all.size()) break;
    out.AppendRange(text, done, found);
    out.Append(to);
    done = found + from.size();
    look = done;
    if (count > 0) --count;
    if (out.size() > all.size()) BATON_RETURN_IF_ERROR(budget.CheckRoom(out.size()));
    if (from.size() > 0) continue;
    if (found >= all.size()) break;  // an empty `from` stands between all characters
    look = found + DecodeUtf8(all, found).length;
  }
  out.AppendRange(text, done, all.size());
  return out;
}

StatusOr<std::vector<MarkedText>> Split(const MarkedText& text,
                                        std::optional<std::string_view> separator,
                                        int64_t limit,
                                        bool from_right) {
  if (!separator) return from_right ? SplitSpacesFromRight(text, limit) : SplitSpaces(text, limit);
  if (separator->empty()) return InvalidArgument("split() needs a separator that is not empty");
  const std::string& all = text.text();
  std::vector<MarkedText> parts;
  if (from_right) {
    size_t end = all.size();
    while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
      const size_t found = end < separator->size() ? std::string::npos
                                                   : all.rfind(*separator, end - separator->size());
      if (found == std::string::npos) break;
      parts.push_back(text.Slice(found + separator->size(), end));
      end = found;
    }
    parts.push_back(text.Slice(0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  size_t begin = 0;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t found = all.find(*separator, begin);
    if (found == std::string::npos) break;
    parts.push_back(text.Slice(begin, found));
    begin = found + separator->size();
  }
  parts.push_back(text.Slice(begin, all.size()));
  return parts;
}

std::vector<MarkedText> SplitLines(const MarkedText& text, bool keep_ends) {
  const std::string_view all = text.text();
  std::vector<MarkedText> lines;
  size_t begin = 0;
  for (size_t pos = 0; pos < all.size();) {
    const CodePoint c = DecodeUtf8(all, pos);
    size_t after = pos + c.length;
    const bool ends = (c.value >= 0x0A && c.value <= 0x0D) ||
                      (c.value >= 0x1C && c.value <= 0x1E) || c.value == 0x85 ||
                      c.value == 0x2028 || c.value == 0x2029;
    if (ends) {
      if (c.value == '\r' && after < all.size() && all[after] == '\n') ++after;
      lines.push_back(text.Slice(begin, keep_ends ? after : pos));
      begin = after;
    }
    pos = after;
  }
  if (begin < all.size()) lines.push_back(text.Slice(begin, all.size()));
  return lines;
}

MarkedText Strip(const MarkedText& text,
                 std::optional<std::string_view> characters,
                 bool left,
                 bool right) {
  const std::string_view all = text.text();
  if (!characters) {
    const auto [begin, end] = StripSpaces(all, left, right);
    return text.Slice(begin, end);
  }
  size_t begin = 0;
  while (left && begin < all.size()) {
    const size_t length = DecodeUtf8(all, begin).length;
    if (!IsAnyOf(all.substr(begin, length), *characters)) break;
    begin += length;
  }
  size_t end = all.size();
  while (right && end > begin) {
    const size_t before = PreviousCharacter(all, end);
    if (!IsAnyOf(all.substr(before, end - before), *characters)) break;
    end = before;
  }
  return text.Slice(begin, end);
}

MarkedText ChangeCase(const MarkedText& text, LetterCase target) {
  std::string out;
  out.reserve(text.size());
  bool in_word = false;  // a cased letter stands before
  bool first = true;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeUtf8(text.text(), pos);
    pos += c.length;
    const bool upper = target == LetterCase::kUpper ||
                       (target == LetterCase::kCapitalized && first) ||
                       (target == LetterCase::kTitle && !in_word) ||
                       (target == LetterCase::kSwapped && !IsUpper(c.value));
    upper ? AppendUpper(out, c.value) : AppendLower(out, c.value);
    in_word = IsCased(c.value);
    first = false;
  }
  return MarkedText(std::move(out), text.trusted());
}

MarkedText TitleWords(const MarkedText& text) {
  std::string out;
  bool starts_word = true;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeUtf8(text.text(), pos);
    pos += c.length;
    starts_word ? AppendUpper(out, c.value) : AppendLower(out, c.value);
    starts_word = IsPythonSpace(c.value) ||
                  (c.value < 0x80 && std::string_view("-({[<").find(static_cast<char>(c.value)) !=
                                         std::string_view::npos);
  }
  return MarkedText(std::move(out), text.trusted());
}

std::vector<MarkedText> Characters(const MarkedText& text) {
  std::vector<MarkedText> characters;
  for (size_t pos = 0; pos < text.size();) {
    const size_t length = DecodeUtf8(text.text(), pos).length;
    characters.push_back(text.Slice(pos, pos + length));
    pos += length;
  }
  return characters;
}

StatusOr<MarkedText> Repeat(const MarkedText& text, int64_t count, Budget& budget) {
  MarkedText out;
  if (count <= 0 || text.size() == 0) return out;
  if (static_cast<uint64_t>(count) > SIZE_MAX / text.size()) return budget.CheckRoom(SIZE_MAX);
  BATON_RETURN_IF_ERROR(budget.CheckRoom(text.size() * static_cast<size_t>(count)));
  BATON_RETURN_IF_ERROR(budget.Spend(static_cast<uint64_t>(count)));
  for (int64_t i = 0; i < count; ++i) out.Append(text);
  return out;
}

}  // namespace baton::jinja
