#include "common/grammar/escape_check.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>

#include <absl/strings/ascii.h>

#include "common/base/shortened.h"
#include "common/grammar/marked_formats.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

constexpr uint32_t kMaxCodePoint = 0x10FFFF;

bool IsHexDigit(char c) {
  return absl::ascii_isxdigit(static_cast<unsigned char>(c));
}

}  // namespace

StatusOr<size_t> CheckedEscape(std::string_view what, std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at);
  if (rest.size() < 2) return rest.size();  // a parser reports it
  const char letter = rest[1];
  const size_t count = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
  if (count == 0) return size_t{2};
  const std::string_view digits = rest.substr(2, count);
  // XGrammar reads any number of digits behind \x.
  const bool more = letter == 'x' && rest.size() > 4 && IsHexDigit(rest[4]);
  uint32_t value = 0;
  if (digits.size() == count && std::ranges::all_of(digits, IsHexDigit) && !more) {
    std::from_chars(digits.data(), digits.data() + count, value, 16);
    if (value <= kMaxCodePoint && (value < 0xD800 || value > 0xDFFF)) {
      std::string character;
      AppendUtf8(character, value);
      BATON_RETURN_IF_ERROR(CheckUnsigned(what, character));
      return 2 + count;
    }
  }
  return InvalidArgument(
      "{} has the escape '{}'; \\x must have exactly two hexadecimal digits, \\u four and \\U "
      "eight, which must name a character of Unicode",
      what,
      Shortened(rest, kMaxQuotedText));
}

}  // namespace baton
