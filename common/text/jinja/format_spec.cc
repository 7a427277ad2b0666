#include <algorithm>
#include <cmath>

#include "common/text/jinja/text_format.h"
#include "common/text/jinja/text_ops.h"
#include "common/text/jinja/value_text.h"
#include "common/text/utf8.h"

// Formats numbers and text by a specification. text_format.cc parses the formats that have the
// specifications.

namespace baton::jinja {
namespace {

constexpr int kMaxPrecision = 1000;
constexpr std::string_view kFloatTypes = "eEfFgG%";

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// Reads a number at `pos` and moves `pos` after it. A number that would overflow is clamped.
size_t ReadNumber(std::string_view text, size_t& pos) {
  constexpr size_t kLargest = size_t{1} << 40;
  size_t value = 0;
  for (; pos < text.size() && IsDigit(text[pos]); ++pos) {
    value = std::min(kLargest, value * 10 + static_cast<size_t>(text[pos] - '0'));
  }
  return value;
}

Status NoSuchFormat(const FormatSpec& spec, const Value& value) {
  return InvalidArgument("the format '{}' is not known for a {}", spec.type, value.type_name());
}

std::string PrintDouble(const FormatSpec& spec, char type, int precision, double value) {
  const std::string pattern = fmt::format("{{:{}.{{}}{}}}", spec.alternate ? "#" : "", type);
  return fmt::format(fmt::runtime(pattern), value, precision);
}

// The digits of `value`, which is not negative.
std::string FloatDigits(const FormatSpec& spec, double value) {
  if (!std::isfinite(value)) {
    const std::string text = std::isnan(value) ? "nan" : "inf";
    const bool upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
    return upper ? (std::isnan(value) ? "NAN" : "INF") : text + (spec.type == '%' ? "%" : "");
  }
  if (spec.type == '%')
    return PrintDouble(spec, 'f', spec.precision.value_or(6), value * 100) + "%";
  if (spec.type != '\0' && spec.type != 'n') {
    return PrintDouble(spec, spec.type, spec.precision.value_or(6), value);
  }
  if (spec.type == 'n') return PrintDouble(spec, 'g', spec.precision.value_or(6), value);
  if (!spec.precision) return FloatText(value);
  // Like 'g', but a number with as many integer digits as the precision has an exponent, too.
  const int digits = std::max(1, *spec.precision);
  std::string text = PrintDouble(spec, 'e', digits - 1, value);
  const size_t e = text.find('e');
  if (std::stoi(text.substr(e + 1)) == digits - 1) {
    const size_t zeros = text.find('.') < e ? text.find_last_not_of('0', e - 1) : e - 1;
    const size_t end = text[zeros] == '.' ? zeros : zeros + 1;
    return text.erase(end, e - end);
  }
  text = PrintDouble(spec, 'g', digits, value);
  // Like str(), adds a point when there is no exponent.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string IntegerDigits(const FormatSpec& spec, uint64_t value) {
  const char* prefix = "";
  std::string digits;
  switch (spec.type) {
    case 'b':
      prefix = "0b";
      digits = fmt::format("{:b}", value);
      break;
    case 'o':
      prefix = "0o";
      digits = fmt::format("{:o}", value);
      break;
    case 'x':
      prefix = "0x";
      digits = fmt::format("{:x}", value);
      break;
    case 'X':
      prefix = "0X";
      digits = fmt::format("{:X}", value);
      break;
    default:
      return fmt::format("{}", value);
  }
  return (spec.alternate ? prefix : "") + digits;
}

// The number of digits before a point or an exponent.
size_t WholeDigits(const std::string& digits, bool as_float) {
  return as_float ? std::min(digits.find_first_of(".eE%"), digits.size()) : digits.size();
}

// `digits` with separators between the first `end` of them.
std::string Grouped(const std::string& digits, size_t end, char separator, size_t every) {
  std::string out;
  for (size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % every == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out + digits.substr(end);
}

StatusOr<MarkedText> Padded(const FormatSpec& spec,
                            char fallback_align,
                            const MarkedText& text,
                            Budget& budget) {
  const size_t length = CountCodePoints(text.text());
  const size_t missing = spec.width > length ? spec.width - length : 0;
  const char align = spec.align == '\0' ? fallback_align : spec.align;
  const size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const MarkedText fill(spec.fill, true);
  BATON_ASSIGN_OR_RETURN(MarkedText out, Repeat(fill, static_cast<int64_t>(left), budget));
  BATON_ASSIGN_OR_RETURN(const MarkedText right,
                         Repeat(fill, static_cast<int64_t>(missing - left), budget));
  BATON_RETURN_IF_ERROR(budget.CheckRoom(out.size() + text.size() + right.size()));
  out.Append(text);
  out.Append(right);
  return out;
}

StatusOr<MarkedText> FormatNumber(const FormatSpec& spec, const Value& value, Budget& budget) {
  const bool as_float = value.is_float() || kFloatTypes.find(spec.type) != std::string_view::npos;
  const bool negative = value.is_float()
                            ? std::signbit(value.as_float()) && value.as_float() == value.as_float()
                            : value.as_int() < 0;
  if (value.is_float() && std::string_view("bcdoxX").find(spec.type) != std::string_view::npos &&
      spec.type != '\0') {
    return NoSuchFormat(spec, value);
  }
  std::string digits;
  if (as_float) {
    digits = FloatDigits(spec, std::abs(value.as_float()));
  } else if (spec.precision) {
    return InvalidArgument("the format of an integer has no precision");
  } else {
    const auto bits = static_cast<uint64_t>(value.as_int());
    digits = IntegerDigits(spec, negative ? uint64_t{0} - bits : bits);
  }
  std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (!as_float && spec.alternate && spec.type != '\0' && spec.type != 'd' && spec.type != 'n') {
    sign += digits.substr(0, 2);
    digits.erase(0, 2);
  }
  const size_t every = spec.grouping == '_' && !as_float &&
                               std::string_view("boxX").find(spec.type) != std::string_view::npos &&
                               spec.type != '\0'
                           ? 4
                           : 3;
  if (spec.align != '=') {
    if (spec.grouping != '\0') {
      digits = Grouped(digits, WholeDigits(digits, as_float), spec.grouping, every);
    }
    return Padded(spec, '>', MarkedText(sign + digits, true), budget);
  }
  // The fill goes between the sign and the digits. Fill zeros are grouped, too.
  BATON_RETURN_IF_ERROR(budget.CheckRoom(2 * spec.width));
  BATON_RETURN_IF_ERROR(budget.SpendOnBytes(2 * spec.width));
  if (spec.grouping != '\0' && spec.fill == "0") {
    const size_t room = spec.width > sign.size() ? spec.width - sign.size() : 0;
    const size_t whole = WholeDigits(digits, as_float);
    const size_t rest = digits.size() - whole;
    size_t wanted = whole;
    while (wanted + (wanted - 1) / every + rest < room) ++wanted;
    digits.insert(0, wanted - whole, '0');
  }
  if (spec.grouping != '\0') {
    digits = Grouped(digits, WholeDigits(digits, as_float), spec.grouping, every);
  }
  const size_t length = sign.size() + digits.size();
  std::string out = sign;
  for (size_t i = length; i < spec.width; ++i) out += spec.fill;
  return MarkedText(out + digits, true);
}

StatusOr<MarkedText> FormatText(const FormatSpec& spec, const Value& value, Budget& budget) {
  if (spec.type != '\0' && spec.type != 's') return NoSuchFormat(spec, value);
  if (spec.align == '=' || spec.sign != '-' || spec.grouping != '\0' || spec.alternate) {
    return InvalidArgument("the format of text has no sign, grouping, '#' or '='");
  }
  const MarkedText& text = value.text();
  if (!spec.precision) return Padded(spec, '<', text, budget);
  size_t end = 0;
  for (int i = 0; i < *spec.precision && end < text.size(); ++i) {
    end += DecodeUtf8(text.text(), end).length;
  }
  return Padded(spec, '<', text.Slice(0, end), budget);
}

}  // namespace

StatusOr<FormatSpec> ParseFormatSpec(std::string_view text) {
  FormatSpec spec;
  size_t pos = 0;
  const auto is_align = [&](size_t at) {
    return at < text.size() && std::string_view("<>^=").find(text[at]) != std::string_view::npos;
  };
  const size_t first = text.empty() ? 0 : DecodeUtf8(text, 0).length;
  if (first > 0 && is_align(first)) {
    spec.fill = std::string(text.substr(0, first));
    spec.align = text[first];
    pos = first + 1;
  } else if (is_align(0)) {
    spec.align = text[pos++];
  }
  const auto take = [&](std::string_view any) {
    const bool found = pos < text.size() && any.find(text[pos]) != std::string_view::npos;
    return found ? text[pos++] : '\0';
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != '\0';
  if (pos < text.size() && text[pos] == '0') {
    ++pos;
    if (spec.align == '\0') spec.fill = "0";
    if (spec.align == '\0') spec.align = '0';  // '=' for numbers, '<' for text
  }
  spec.width = ReadNumber(text, pos);
  spec.grouping = take(",_");
  if (take(".") != '\0') {
    if (pos >= text.size() || !IsDigit(text[pos])) {
      return InvalidArgument("the format '{}' lacks digits after its point", text.substr(0, 40));
    }
    const size_t precision = ReadNumber(text, pos);
    if (precision > kMaxPrecision) {
      return InvalidArgument(
          "a format's precision is {}; it must be at most {}", precision, kMaxPrecision);
    }
    spec.precision = static_cast<int>(precision);
  }
  spec.type = take("bcdeEfFgGnosxX%");
  if (pos != text.size()) {
    return InvalidArgument("'{}' is not a format specification", text.substr(0, 40));
  }
  return spec;
}

StatusOr<MarkedText> FormatValue(const Value& value, std::string_view text, Budget& budget) {
  if (text.empty()) return ToText(value, budget);
  BATON_ASSIGN_OR_RETURN(FormatSpec spec, ParseFormatSpec(text));
  if (spec.align == '0') spec.align = value.is_string() ? '<' : '=';
  if (value.is_string()) return FormatText(spec, value, budget);
  if (!value.is_number()) {
    return InvalidArgument(
        "a {} cannot be formatted with '{}'", value.type_name(), text.substr(0, 40));
  }
  if (spec.type == 's') return NoSuchFormat(spec, value);
  if (spec.type != 'c') return FormatNumber(spec, value, budget);
  if (value.is_float() || value.as_int() < 0 || value.as_int() > 0x10FFFF) {
    return InvalidArgument("the format 'c' needs the code of a character");
  }
  std::string character;
  AppendUtf8(character, static_cast<char32_t>(value.as_int()));
  return Padded(spec, '>', MarkedText(character, true), budget);
}

}  // namespace baton::jinja
