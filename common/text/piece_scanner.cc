#include "common/text/piece_scanner.h"

#include <cstdint>

#include "common/text/utf8.h"

namespace baton {
namespace {

// Reads characters of text up to `end`, which the patterns' look-ahead treats as the end of the
// text.
class Reader final {
 public:
  Reader(const UnicodeClasses& classes, std::string_view text, size_t end)
      : classes_(classes), text_(text), end_(end) {}

  struct Char {
    CharClass bits = 0;
    size_t length = 0;  // 0 at the end
  };

  Char At(size_t pos) const {
    if (pos >= end_) return {};
    const auto lead = static_cast<uint8_t>(text_[pos]);
    if (lead < 0x80) return {classes_.OfAscii(lead), 1};
    const CodePoint c = DecodeUtf8(text_, pos);
    return {classes_.Of(c.value), c.length};
  }

  // The end of the run of characters from `pos` on that have one of `bits`.
  size_t SkipAny(size_t pos, CharClass bits) const {
    for (Char c = At(pos); c.bits & bits; c = At(pos)) pos += c.length;
    return pos;
  }

  // The end of the run of characters from `pos` on that are neither space, letter nor number.
  size_t SkipSymbols(size_t pos) const {
    for (Char c = At(pos); IsSymbol(c); c = At(pos)) pos += c.length;
    return pos;
  }

  // The end of the match of `\s+(?!\S)|\s+` at `pos`, which is a space character.
  size_t SkipSpaces(size_t pos) const {
    const size_t first = pos;
    size_t last = pos;
    for (Char c = At(pos); c.bits & kSpace; c = At(pos)) {
      last = pos;
      pos += c.length;
    }
    return pos < end_ && last > first ? last : pos;
  }

  // The end of the match of `\s*[\r\n]+` at `pos`; `pos` when it does not match.
  size_t SkipThroughLineEnd(size_t pos) const {
    size_t after = pos;
    for (Char c = At(pos); c.bits & kSpace; c = At(pos)) {
      pos += c.length;
      if (c.bits & kLineEnd) after = pos;
    }
    return after;
  }

  // The length of 's 't 're 've 'm 'll 'd at `pos`, or 0. With `ignore_case`, U+017F is an s, too.
  size_t Contraction(size_t pos, bool ignore_case) const {
    if (pos + 1 >= end_ || text_[pos] != '\'') return 0;
    const auto lower = [&](size_t at) {
      const char c = at < end_ ? text_[at] : '\0';
      return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    const char first = lower(pos + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    const char second = lower(pos + 2);
    if ((first == 'r' || first == 'v') && second == 'e') return 3;
    if (first == 'l' && second == 'l') return 3;
    if (ignore_case && first == '\xC5' && second == '\xBF') return 3;
    return 0;
  }

  bool IsPlainSpace(size_t pos) const { return pos < end_ && text_[pos] == ' '; }
  bool IsSlash(size_t pos) const { return pos < end_ && text_[pos] == '/'; }
  static bool IsSymbol(Char c) { return c.length && !(c.bits & (kSpace | kLetter | kNumber)); }

 private:
  const UnicodeClasses& classes_;
  std::string_view text_;
  size_t end_;
};

size_t NextGpt2(const Reader& in, size_t pos) {
  if (const size_t length = in.Contraction(pos, false)) return pos + length;
  const size_t body = in.IsPlainSpace(pos) ? pos + 1 : pos;
  const Reader::Char c = in.At(body);
  if (c.bits & kLetter) return in.SkipAny(body, kLetter);
  if (c.bits & kNumber) return in.SkipAny(body, kNumber);
  if (Reader::IsSymbol(c)) return in.SkipSymbols(body);
  return in.SkipSpaces(pos);
}

// The alternatives that the patterns of Llama 3, Qwen 2 and Tekken share, which follow those for
// words and numbers.
size_t NextSymbolsOrSpaces(const Reader& in, size_t pos, bool with_slash) {
  const size_t body = in.IsPlainSpace(pos) ? pos + 1 : pos;
  if (Reader::IsSymbol(in.At(body))) {
    size_t end = in.SkipSymbols(body);
    while ((in.At(end).bits & kLineEnd) || (with_slash && in.IsSlash(end))) ++end;
    return end;
  }
  const size_t line = in.SkipThroughLineEnd(pos);
  return line > pos ? line : in.SkipSpaces(pos);
}

// The end of `[^\r\n\p{L}\p{N}]?`, where a word may start; `pos` when the character at `pos` does
// not match.
size_t SkipWordPrefix(const Reader& in, size_t pos) {
  const Reader::Char c = in.At(pos);
  return c.bits & (kLetter | kNumber | kLineEnd) ? pos : pos + c.length;
}

size_t SkipDigits(const Reader& in, size_t pos, int at_most) {
  for (int i = 0; i < at_most; ++i) {
    const Reader::Char c = in.At(pos);
    if (!(c.bits & kNumber)) break;
    pos += c.length;
  }
  return pos;
}

size_t NextLlama3(const Reader& in, size_t pos, int max_digits) {
  if (const size_t length = in.Contraction(pos, true)) return pos + length;
  const size_t body = SkipWordPrefix(in, pos);
  if (in.At(body).bits & kLetter) return in.SkipAny(body, kLetter);
  if (const size_t end = SkipDigits(in, pos, max_digits); end > pos) return end;
  return NextSymbolsOrSpaces(in, pos, false);
}

// The end of the match of `[upper-like]*[lower-like]+` at `pos`; `pos` when it does not match.
// Modifiers, other letters and marks belong to both classes. When no lower-like character follows
// the first run, the match therefore ends after the run's last character of both classes.
size_t SkipCapitalisedWord(const Reader& in, size_t pos) {
  size_t upper_end = pos;
  size_t given_back_end = pos;
  for (Reader::Char c = in.At(pos); c.bits & kUpperLike; c = in.At(upper_end)) {
    upper_end += c.length;
    if (c.bits & kLowerLike) given_back_end = upper_end;
  }
  const size_t end = in.SkipAny(upper_end, kLowerLike);
  return end > upper_end ? end : given_back_end;
}

size_t NextTekken(const Reader& in, size_t pos) {
  const size_t body = SkipWordPrefix(in, pos);
  if (const size_t end = SkipCapitalisedWord(in, body); end > body) return end;
  if (const size_t end = SkipCapitalisedWord(in, pos); end > pos) return end;
  for (const size_t start : {body, pos}) {
    const size_t end = in.SkipAny(start, kUpperLike);
    if (end > start) return in.SkipAny(end, kLowerLike);
  }
  if (const size_t end = SkipDigits(in, pos, 1); end > pos) return end;
  return NextSymbolsOrSpaces(in, pos, true);
}

}  // namespace

std::string_view PublishedPattern(PatternKind kind) {
  switch (kind) {
    case PatternKind::kGpt2:
    case PatternKind::kSmolLm:
      return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    case PatternKind::kLlama3:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
             R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case PatternKind::kQwen2:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
             R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case PatternKind::kTekken:
      return R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
             R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
             R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  }
  return "";
}

std::optional<PatternKind> KnownPattern(std::string_view regex) {
  for (const PatternKind kind :
       {PatternKind::kGpt2, PatternKind::kLlama3, PatternKind::kQwen2, PatternKind::kTekken}) {
    if (regex == PublishedPattern(kind)) return kind;
  }
  constexpr std::string_view kGpt2Grouped =
      R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  if (regex == kGpt2Grouped) return PatternKind::kGpt2;
  return std::nullopt;
}

void PieceScanner::Split(std::string_view text,
                         size_t begin,
                         size_t end,
                         std::vector<size_t>& ends) const {
  if (kind_ == PatternKind::kSmolLm) return SplitIsolatingDigits(text, end, begin, ends);
  const Reader in(classes_, text, end);
  for (size_t pos = begin; pos < end;) {
    switch (kind_) {
      case PatternKind::kGpt2:
      case PatternKind::kSmolLm:
        pos = NextGpt2(in, pos);
        break;
      case PatternKind::kLlama3:
        pos = NextLlama3(in, pos, 3);
        break;
      case PatternKind::kQwen2:
        pos = NextLlama3(in, pos, 1);
        break;
      case PatternKind::kTekken:
        pos = NextTekken(in, pos);
        break;
    }
    ends.push_back(pos);
  }
}

void PieceScanner::SplitIsolatingDigits(std::string_view text,
                                        size_t end,
                                        size_t pos,
                                        std::vector<size_t>& ends) const {
  const Reader whole(classes_, text, end);
  while (pos < end) {
    size_t stretch = pos;
    Reader::Char c = whole.At(stretch);
    for (; c.length && !(c.bits & kNumber); c = whole.At(stretch)) stretch += c.length;
    const Reader in(classes_, text, stretch);
    while (pos < stretch) {
      pos = NextGpt2(in, pos);
      ends.push_back(pos);
    }
    if (c.length) ends.push_back(pos = stretch + c.length);
  }
}

}  // namespace baton
