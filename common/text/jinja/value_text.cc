#include "common/text/jinja/value_text.h"

#include <utf8proc.h>

#include <charconv>
#include <cmath>

#include "common/text/jinja/objects.h"
#include "common/text/unicode_class.h"
#include "common/text/utf8.h"

namespace baton::jinja {
namespace {

// Writes repr(), Python's text of a value as it would be in code.
class ReprWriter final {
 public:
  explicit ReprWriter(Budget& budget) : budget_(budget) {}

  Status Write(const Value& value) {
    if (value.is_string()) return WriteString(value.str());
    if (value.is_sequence()) return WriteSequence(value);
    if (value.is_dict()) return WriteDict(value.dict());
    out_ += Scalar(value);
    return OkStatus();
  }
  std::string Take() { return std::move(out_); }

 private:
  static std::string Scalar(const Value& value) {
    if (value.is_undefined()) return "Undefined";
    if (value.is_none()) return "None";
    if (value.is_bool()) return value.as_bool() ? "True" : "False";
    if (value.is_int()) return std::to_string(value.as_int());
    if (value.is_float()) return FloatText(value.as_float());
    return fmt::format("<{}>", value.type_name());
  }

  Status WriteSequence(const Value& value) {
    const auto& items = value.items();
    out_ += value.is_tuple() ? '(' : '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += ", ";
      BATON_RETURN_IF_ERROR(Write(items[i]));
    }
    if (value.is_tuple() && items.size() == 1) out_ += ',';
    out_ += value.is_tuple() ? ')' : ']';
    return budget_.CheckRoom(out_.capacity());
  }

  Status WriteDict(const DictObject& dict) {
    out_ += '{';
    for (size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) out_ += ", ";
      BATON_RETURN_IF_ERROR(Write(dict.entries[i].first));
      out_ += ": ";
      BATON_RETURN_IF_ERROR(Write(dict.entries[i].second));
    }
    out_ += '}';
    return budget_.CheckRoom(out_.capacity());
  }

  static char QuoteFor(const std::string& text) {
    const bool single = text.find('\'') == std::string::npos || text.find('"') != std::string::npos;
    return single ? '\'' : '"';
  }

  // Writes an ASCII character, escaped where needed; false, without writing, for others.
  bool WriteEscape(char32_t c, char quote) {
    static constexpr std::string_view kEscaped = "\n\r\t\\";
    static constexpr std::string_view kNames = "nrt\\";
    const size_t at = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
    if (at != std::string_view::npos) {
      out_.append({'\\', kNames[at]});
    } else if (c == static_cast<char32_t>(quote)) {
      out_.append({'\\', quote});
    } else if (c >= ' ' && c < 0x7F) {
      out_ += static_cast<char>(c);
    } else {
      return false;
    }
    return true;
  }

  Status WriteString(const std::string& text) {
    BATON_RETURN_IF_ERROR(budget_.CheckRoom(out_.size() + 2 * text.size()));
    const char quote = QuoteFor(text);
    out_ += quote;
    for (size_t pos = 0; pos < text.size();) {
      const CodePoint c = DecodeUtf8(text, pos);
      if (WriteEscape(c.value, quote)) {
      } else if (IsPrintable(c.value)) {
        out_.append(text, pos, c.length);
      } else if (c.value < 0x100) {
        out_ += fmt::format("\\x{:02x}", uint32_t{c.value});
      } else if (c.value < 0x10000) {
        out_ += fmt::format("\\u{:04x}", uint32_t{c.value});
      } else {
        out_ += fmt::format("\\U{:08x}", uint32_t{c.value});
      }
      pos += c.length;
    }
    out_ += quote;
    return OkStatus();
  }

  Budget& budget_;
  std::string out_;
};

}  // namespace

StatusOr<MarkedText> ToText(const Value& value, Budget& budget) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return MarkedText();
  return ToRepr(value, budget);
}

StatusOr<MarkedText> ToRepr(const Value& value, Budget& budget) {
  BATON_RETURN_IF_ERROR(budget.Spend(4 * value.extent().weight));
  ReprWriter writer(budget);
  BATON_RETURN_IF_ERROR(writer.Write(value));
  return MarkedText(writer.Take(), IsTrusted(value));
}

bool IsTrusted(const Value& value) {
  if (value.is_string()) return value.text().trusted();
  if (value.is_sequence()) {
    for (const Value& item : value.items()) {
      if (!IsTrusted(item)) return false;
    }
  }
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict().entries) {
      if (!IsTrusted(key) || !IsTrusted(item)) return false;
    }
  }
  return true;
}

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view scientific(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t e = scientific.find('e');
  int exponent = 0;
  const char* digits = scientific.data() + e + (scientific[e + 1] == '+' ? 2 : 1);
  std::from_chars(digits, scientific.data() + scientific.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    return fmt::format(
        "{}e{}{:02d}", scientific.substr(0, e), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  char fixed[64];
  const auto fixed_end =
      std::to_chars(fixed, fixed + sizeof(fixed), value, std::chars_format::fixed);
  std::string text(fixed, fixed_end.ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

bool IsPrintable(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

bool IsPythonSpace(char32_t c) {
  return IsUnicodeSpace(c) || (c >= 0x1C && c <= 0x1F);
}

std::pair<size_t, size_t> StripSpaces(std::string_view text, bool left, bool right) {
  size_t begin = 0;
  while (left && begin < text.size()) {
    const CodePoint c = DecodeUtf8(text, begin);
    if (!IsPythonSpace(c.value)) break;
    begin += c.length;
  }
  size_t end = text.size();
  while (right && end > begin) {
    size_t before = end - 1;
    while (before > begin && (static_cast<uint8_t>(text[before]) & 0xC0) == 0x80) --before;
    if (!IsPythonSpace(DecodeUtf8(text, before).value)) break;
    end = before;
  }
  return {begin, end};
}

}  // namespace baton::jinja
