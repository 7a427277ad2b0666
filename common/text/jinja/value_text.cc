#include "common/text/jinja/value_text.h"

#include <utf8proc.h>

#include <charconv>
#include <cmath>

#include "common/text/jinja/objects.h"
#include "common/text/unicode_class.h"
#include "common/text/utf8.h"

namespace baton::jinja {
namespace {

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

std::string QuotedText(const std::string& text) {
  const bool single = text.find('\'') == std::string::npos || text.find('"') != std::string::npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeUtf8(text, pos);
    const std::string_view bytes = std::string_view(text).substr(pos, c.length);
    pos += c.length;
    if (c.value == '\n') {
      out += "\\n";
    } else if (c.value == '\r') {
      out += "\\r";
    } else if (c.value == '\t') {
      out += "\\t";
    } else if (c.value == '\\' || c.value == static_cast<char32_t>(quote)) {
      out.append("\\").append(bytes);
    } else if (IsPrintable(c.value)) {
      out += bytes;
    } else if (c.value < 0x100) {
      out += fmt::format("\\x{:02x}", uint32_t{c.value});
    } else if (c.value < 0x10000) {
      out += fmt::format("\\u{:04x}", uint32_t{c.value});
    } else {
      out += fmt::format("\\U{:08x}", uint32_t{c.value});
    }
  }
  out.push_back(quote);
  return out;
}

void AppendRepr(const Value& value, std::string& out) {
  if (value.is_string()) {
    out += QuotedText(value.str());
  } else if (value.is_sequence()) {
    const auto& items = value.items();
    out += value.is_tuple() ? '(' : '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += ", ";
      AppendRepr(items[i], out);
    }
    if (value.is_tuple() && items.size() == 1) out += ',';
    out += value.is_tuple() ? ')' : ']';
  } else if (value.is_dict()) {
    out += '{';
    const auto& entries = value.dict().entries;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out += ", ";
      AppendRepr(entries[i].first, out);
      out += ": ";
      AppendRepr(entries[i].second, out);
    }
    out += '}';
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else if (value.is_none()) {
    out += "None";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "True" : "False";
  } else if (value.is_int()) {
    out += std::to_string(value.as_int());
  } else if (value.is_float()) {
    out += FloatText(value.as_float());
  } else {
    out += fmt::format("<{}>", value.type_name());
  }
}

}  // namespace

StatusOr<MarkedText> ToText(const Value& value, Budget& budget) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return MarkedText();
  return ToRepr(value, budget);
}

StatusOr<MarkedText> ToRepr(const Value& value, Budget& budget) {
  BATON_RETURN_IF_ERROR(budget.Spend(value.extent().weight));
  std::string text;
  AppendRepr(value, text);
  return MarkedText(std::move(text), IsTrusted(value));
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
