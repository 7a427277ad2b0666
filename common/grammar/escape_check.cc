#include "common/grammar/escape_check.h"

#include <algorithm>
#include <charconv>

#include <absl/strings/ascii.h>

#include "common/base/shortened.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

constexpr uint32_t kMaxCodePoint = 0x10FFFF;

// What may follow the backslash of an escape of two characters in a regular expression.
constexpr std::string_view kShortEscapes = R"(^$.*+?()[]{}|-/\'"abefnrtv0dDsSwW)";
// What XGrammar names in an error of its own, outside of classes.
constexpr std::string_view kUnsupported = "123456789kpPB";

bool IsHexDigit(char c) {
  return absl::ascii_isxdigit(static_cast<unsigned char>(c));
}

// Whether XGrammar takes the first character of `text` for a hexadecimal digit. It reads regular
// expressions as code points and looks at their lowest bytes only, so that U+0431 is a 1, too.
bool IsReadAsHexDigit(GrammarText kind, std::string_view text) {
  if (text.empty()) return false;
  const bool regex = kind == GrammarText::kRegex;
  return IsHexDigit(regex ? static_cast<char>(DecodeUtf8(text, 0).value & 0xFF) : text[0]);
}

// An escape with the number of a character, or one that has none.
struct Escape {
  size_t length = 2;
  bool valid = true;
  bool numbered = false;
  uint32_t value = 0;
};

// The number that the `digits` state; false when there is another number of digits than `count`.
bool Number(std::string_view digits, size_t count, uint32_t& value) {
  if (digits.size() < count || !std::ranges::all_of(digits.substr(0, count), IsHexDigit)) {
    return false;
  }
  std::from_chars(digits.data(), digits.data() + count, value, 16);
  return true;
}

Escape Read(GrammarText kind, std::string_view text, EscapePlace place) {
  Escape escape;
  if (text.size() < 2) return escape;  // a parser reports it
  const char letter = text[1];
  const std::string_view rest = text.substr(2);
  const bool regex = kind == GrammarText::kRegex;
  if (letter == 'x') {
    const bool two = Number(rest, 2, escape.value);
    escape = {4, two && !IsReadAsHexDigit(kind, rest.substr(2)), true, escape.value};
  } else if (letter == 'u' && regex && rest.starts_with('{')) {
    const size_t digits = std::min(rest.find('}'), rest.size()) - 1;
    const bool fits = digits >= 1 && digits <= 6 && rest.size() > digits + 1;
    escape = {digits + 4, fits && Number(rest.substr(1), digits, escape.value), true, escape.value};
  } else if (letter == 'u' || letter == 'U') {
    const size_t digits = letter == 'u' ? 4 : 8;
    escape = {2 + digits, Number(rest, digits, escape.value), true, escape.value};
  } else if (letter == 'c' && regex && !rest.empty()) {
    escape = {3,
              absl::ascii_isalpha(static_cast<unsigned char>(rest[0])),
              true,
              static_cast<uint32_t>(rest[0] & 31)};
  } else if (regex) {
    escape.valid =
        kShortEscapes.find(letter) != std::string_view::npos ||
        (place == EscapePlace::kOutside && kUnsupported.find(letter) != std::string_view::npos);
  }
  const bool surrogate = escape.value >= 0xD800 && escape.value <= 0xDFFF;
  escape.valid = escape.valid && escape.value <= kMaxCodePoint && !surrogate;
  return escape;
}

// Whether XGrammar writes the character as \x and two digits.
bool IsWrittenInHex(uint32_t value) {
  const bool named = (value >= 7 && value <= 13) || value == 0 || value == 0x1B;
  return value <= 0xFF && !named && !absl::ascii_isprint(static_cast<unsigned char>(value));
}

// Whether what XGrammar writes for the beginning of `text` begins with a hexadecimal digit.
bool BeginsWithHexDigit(std::string_view text) {
  if (text.empty()) return false;
  if (text[0] != '\\') return IsHexDigit(text[0]);
  if (text.starts_with("\\d") || text.starts_with("\\w")) return true;
  const Escape next = Read(GrammarText::kRegex, text, EscapePlace::kInClass);
  return next.numbered && next.value < 0x80 && IsHexDigit(static_cast<char>(next.value));
}

}  // namespace

StatusOr<size_t> CheckedEscape(
    GrammarText kind, std::string_view what, std::string_view text, size_t at, EscapePlace place) {
  const std::string_view rest = text.substr(at);
  const Escape escape = Read(kind, rest, place);
  if (!escape.valid) {
    return InvalidArgument(
        "{} has the escape '{}'; \\x must have exactly two hexadecimal digits, \\u four and \\U "
        "eight, which must name a character of Unicode, \\c a letter from a to z, and a character "
        "without a special meaning must not be escaped",
        what,
        Shortened(rest, kMaxQuotedText));
  }
  const size_t length = std::min(escape.length, rest.size());
  const bool rewritten = kind == GrammarText::kRegex && place != EscapePlace::kOutside;
  if (!rewritten) return length;
  const bool joined =
      escape.numbered && IsWrittenInHex(escape.value) && BeginsWithHexDigit(rest.substr(length));
  if (joined) {
    return InvalidArgument(
        "{} has a class with '{}'; a control character before a digit or a letter from a to f is "
        "not supported in a class: change their order",
        what,
        Shortened(rest, kMaxQuotedText));
  }
  const bool caret = escape.numbered ? escape.value == '^' : rest.starts_with("\\^");
  if (place == EscapePlace::kClassStart && caret) {
    return InvalidArgument(
        "{} has a class that begins with '{}'; an escaped ^ is not supported at the start of a "
        "class: change its order",
        what,
        Shortened(rest, kMaxQuotedText));
  }
  return length;
}

}  // namespace baton
