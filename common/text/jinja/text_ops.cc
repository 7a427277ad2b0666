#include "common/text/jinja/text_ops.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include <absl/container/flat_hash_set.h>

#include "common/base/check.h"
#include "common/text/jinja/value_text.h"
#include "common/text/utf8.h"

namespace baton::jinja {
namespace {

// The set of the characters of `text`.
absl::flat_hash_set<char32_t> CharactersOf(std::string_view text) {
  absl::flat_hash_set<char32_t> set;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeUtf8(text, pos);
    set.insert(c.value);
    pos += c.length;
  }
  return set;
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

// A list of spans that checks the budget while it grows, because a text may consist of separators.
class Spans final {
 public:
  explicit Spans(Budget& budget) : budget_(budget) {}

  void Add(size_t begin, size_t end) {
    if (spans_.size() % 4096 == 0 && status_.ok()) {
      status_ = budget_.CheckRoom(2 * spans_.size() * sizeof(TextSpan));
    }
    if (status_.ok()) spans_.push_back({begin, end});
  }
  bool ok() const { return status_.ok(); }
  bool Reached(int64_t limit) const {
    return limit >= 0 && static_cast<int64_t>(spans_.size()) >= limit;
  }
  StatusOr<std::vector<TextSpan>> Take(bool reversed) {
    BATON_RETURN_IF_ERROR(status_);
    BATON_RETURN_IF_ERROR(budget_.Spend(spans_.size()));
    if (reversed) std::reverse(spans_.begin(), spans_.end());
    return std::move(spans_);
  }

 private:
  Budget& budget_;
  std::vector<TextSpan> spans_;
  Status status_;
};

void SplitSpaces(std::string_view all, int64_t limit, Spans& parts) {
  size_t pos = StripSpaces(all, true, false).first;
  while (pos < all.size() && parts.ok()) {
    if (parts.Reached(limit)) return parts.Add(pos, all.size());
    size_t end = pos;
    while (end < all.size()) {
      const CodePoint c = DecodeUtf8(all, end);
      if (IsPythonSpace(c.value)) break;
      end += c.length;
    }
    parts.Add(pos, end);
    pos = end + StripSpaces(all.substr(end), true, false).first;
  }
}

void SplitSpacesFromRight(std::string_view all, int64_t limit, Spans& parts) {
  size_t end = StripSpaces(all, false, true).second;
  while (end > 0 && parts.ok()) {
    if (parts.Reached(limit)) return parts.Add(0, end);
    size_t begin = end;
    while (begin > 0) {
      const size_t before = PreviousCharacter(all, begin);
      if (IsPythonSpace(DecodeUtf8(all, before).value)) break;
      begin = before;
    }
    parts.Add(begin, end);
    end = StripSpaces(all.substr(0, begin), false, true).second;
  }
}

}  // namespace

size_t FindText(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t FindLastText(std::string_view text, std::string_view part) {
  constexpr size_t kShort = 64;
  if (part.size() <= kShort) return text.rfind(part);
  const std::string reversed(text.rbegin(), text.rend());
  const size_t at = FindText(reversed, std::string(part.rbegin(), part.rend()), 0);
  return at == std::string_view::npos ? at : text.size() - at - part.size();
}

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
    const size_t found = FindText(all, from.text(), look);
    if (found == std::string::npos) break;
    out.AppendRange(text, done, found);
    out.Append(to);
    BATON_RETURN_IF_ERROR(budget.Spend(1 + to.size() / 128));
    BATON_RETURN_IF_ERROR(budget.CheckRoom(out.memory()));
    done = found + from.size();
    look = done;
    if (count > 0) --count;
    if (from.size() > 0) continue;
    if (found >= all.size()) break;  // an empty `from` is found before and after each character
    look = found + DecodeUtf8(all, found).length;
  }
  out.AppendRange(text, done, all.size());
  return out;
}

StatusOr<std::vector<TextSpan>> Split(std::string_view all,
                                      std::optional<std::string_view> separator,
                                      int64_t limit,
                                      bool from_right,
                                      Budget& budget) {
  Spans parts(budget);
  if (!separator) {
    from_right ? SplitSpacesFromRight(all, limit, parts) : SplitSpaces(all, limit, parts);
    return parts.Take(from_right);
  }
  BATON_CHECK(!separator->empty(), "Split was called with an empty separator");
  if (from_right) {
    size_t end = all.size();
    while (!parts.Reached(limit) && parts.ok()) {
      const size_t found = FindLastText(all.substr(0, end), *separator);
      if (found == std::string_view::npos) break;
      if (separator->size() > 64) BATON_RETURN_IF_ERROR(budget.SpendOnBytes(end));
      parts.Add(found + separator->size(), end);
      end = found;
    }
    parts.Add(0, end);
    return parts.Take(true);
  }
  size_t begin = 0;
  while (!parts.Reached(limit) && parts.ok()) {
    const size_t found = FindText(all, *separator, begin);
    if (found == std::string_view::npos) break;
    parts.Add(begin, found);
    begin = found + separator->size();
  }
  parts.Add(begin, all.size());
  return parts.Take(false);
}

StatusOr<std::vector<TextSpan>> SplitLines(std::string_view all, bool keep_ends, Budget& budget) {
  Spans lines(budget);
  size_t begin = 0;
  for (size_t pos = 0; pos < all.size();) {
    const CodePoint c = DecodeUtf8(all, pos);
    size_t after = pos + c.length;
    const bool ends = (c.value >= 0x0A && c.value <= 0x0D) ||
                      (c.value >= 0x1C && c.value <= 0x1E) || c.value == 0x85 ||
                      c.value == 0x2028 || c.value == 0x2029;
    if (ends) {
      if (c.value == '\r' && after < all.size() && all[after] == '\n') ++after;
      lines.Add(begin, keep_ends ? after : pos);
      begin = after;
    }
    pos = after;
  }
  if (begin < all.size()) lines.Add(begin, all.size());
  return lines.Take(false);
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
  const absl::flat_hash_set<char32_t> set = CharactersOf(*characters);
  size_t begin = 0;
  while (left && begin < all.size()) {
    const CodePoint c = DecodeUtf8(all, begin);
    if (!set.contains(c.value)) break;
    begin += c.length;
  }
  size_t end = all.size();
  while (right && end > begin) {
    const size_t before = PreviousCharacter(all, end);
    if (!set.contains(DecodeUtf8(all, before).value)) break;
    end = before;
  }
  return text.Slice(begin, end);
}

MarkedText ChangeCase(const MarkedText& text, LetterCase target) {
  std::string out;
  out.reserve(text.size());
  bool in_word = false;  // the character before has case
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

SliceRange SliceOf(std::optional<int64_t> start,
                   std::optional<int64_t> stop,
                   int64_t step,
                   int64_t size) {
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? size : size - 1;
  const auto bound = [&](std::optional<int64_t> at, int64_t fallback) {
    return at ? std::clamp(*at < 0 ? *at + size : *at, low, high) : fallback;
  };
  SliceRange range;
  range.first = bound(start, step > 0 ? low : high);
  range.stride = std::clamp(step, -size - 1, size + 1);
  const int64_t distance = bound(stop, step > 0 ? high : low) - range.first;
  if (distance != 0 && (distance > 0) == (step > 0)) {
    range.count = (std::abs(distance) - 1) / std::abs(range.stride) + 1;
  }
  return range;
}

StatusOr<MarkedText> SliceText(const MarkedText& text,
                               int64_t size,
                               SliceRange range,
                               Budget& budget) {
  if (range.count == 0) return MarkedText();
  BATON_RETURN_IF_ERROR(budget.Spend(text.size() / 32));
  const std::string& all = text.text();
  std::vector<uint32_t> begins;  // of each character; empty when all characters have one byte
  if (static_cast<size_t>(size) != all.size()) {
    BATON_RETURN_IF_ERROR(budget.CheckRoom(static_cast<size_t>(size) * sizeof(uint32_t)));
    begins.reserve(static_cast<size_t>(size) + 1);
    for (size_t pos = 0; pos < all.size(); ++pos) {
      if ((static_cast<uint8_t>(all[pos]) & 0xC0) != 0x80) {
        begins.push_back(static_cast<uint32_t>(pos));
      }
    }
    begins.push_back(static_cast<uint32_t>(all.size()));
  }
  const auto begin_of = [&](int64_t index) {
    return begins.empty() ? static_cast<size_t>(index) : begins[static_cast<size_t>(index)];
  };
  if (range.stride == 1)
    return text.Slice(begin_of(range.first), begin_of(range.first + range.count));
  BATON_RETURN_IF_ERROR(
      budget.Spend(static_cast<uint64_t>(range.count) / (text.uniform() ? 32 : 4)));
  std::string plain;
  MarkedText marked;
  for (int64_t i = 0; i < range.count; ++i) {
    const int64_t index = range.first + i * range.stride;
    const size_t begin = begin_of(index);
    const size_t end = begin_of(index + 1);
    if (text.uniform()) {
      plain.append(all, begin, end - begin);
    } else {
      marked.AppendRange(text, begin, end);
    }
  }
  return text.uniform() ? MarkedText(std::move(plain), text.trusted()) : marked;
}

StatusOr<MarkedText> Repeat(const MarkedText& text, int64_t count, Budget& budget) {
  MarkedText out;
  if (count <= 0 || text.size() == 0) return out;
  if (static_cast<uint64_t>(count) > SIZE_MAX / text.size()) return budget.CheckRoom(SIZE_MAX);
  BATON_RETURN_IF_ERROR(budget.CheckRoom(text.size() * static_cast<size_t>(count)));
  BATON_RETURN_IF_ERROR(budget.Spend(static_cast<uint64_t>(count) * (1 + text.size() / 128)));
  for (int64_t i = 0; i < count; ++i) out.Append(text);
  return out;
}

}  // namespace baton::jinja
