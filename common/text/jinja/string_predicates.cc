#include <utf8proc.h>

#include <algorithm>

#include <absl/container/flat_hash_map.h>

#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/string_methods.h"
#include "common/text/jinja/text_ops.h"
#include "common/text/jinja/value_text.h"
#include "common/text/unicode_class.h"
#include "common/text/utf8.h"

namespace baton::jinja {
namespace {

// True when the string is not empty and kKind is true for all its characters.
template <bool (*kKind)(char32_t)>
StatusOr<Value> AllCharacters(Interpreter& interpreter, const Value& self, const Arguments&) {
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(self.text().size() / 32));
  const std::string& text = self.str();
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeUtf8(text, pos);
    if (!kKind(c.value)) return Value::Bool(false);
    pos += c.length;
  }
  return Value::Bool(!text.empty());
}

bool IsDecimal(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}
bool IsAlpha(char32_t c) {
  return UnicodeClasses().Of(c) & kLetter;
}
bool IsAlnum(char32_t c) {
  return UnicodeClasses().Of(c) & (kLetter | kNumber);
}

// True when the string has letters with case and all of them are upper case (kUpper) or lower case.
template <bool kUpper>
StatusOr<Value> IsCase(Interpreter& interpreter, const Value& self, const Arguments&) {
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(self.text().size() / 8));
  const std::string other =
      ChangeCase(self.text(), kUpper ? LetterCase::kLower : LetterCase::kUpper).text();
  const std::string same =
      ChangeCase(self.text(), kUpper ? LetterCase::kUpper : LetterCase::kLower).text();
  return Value::Bool(same == self.str() && other != self.str());
}

// Decimal digits, and superscript, circled and similar digits (Unicode's Numeric_Type Digit).
bool IsDigit(char32_t c) {
  static constexpr std::pair<char32_t, char32_t> kOthers[] = {
      {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
      {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
      {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
      {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
      {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return IsDecimal(c) ||
         std::any_of(std::begin(kOthers), std::end(kOthers), [c](const auto& range) {
           return c >= range.first && c <= range.second;
         });
}
bool IsNumeric(char32_t c) {
  return UnicodeClasses().Of(c) & kNumber;
}

StatusOr<Value> IsAscii(Interpreter& interpreter, const Value& self, const Arguments&) {
  BATON_RETURN_IF_ERROR(interpreter.budget().SpendOnBytes(self.text().size()));
  return Value::Bool(CountCodePoints(self.str()) == self.str().size());
}

StatusOr<Value> IsPrintableText(Interpreter& interpreter, const Value& self, const Arguments&) {
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(self.text().size() / 16));
  const std::string& text = self.str();
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeUtf8(text, pos);
    if (!IsPrintable(c.value)) return Value::Bool(false);
    pos += c.length;
  }
  return Value::Bool(true);
}

// True when upper case follows only characters without case, and lower case only characters with
// case.
StatusOr<Value> IsTitle(Interpreter& interpreter, const Value& self, const Arguments&) {
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(self.text().size() / 4));
  const std::string& text = self.str();
  const auto has_case = [&](LetterCase other) {
    return ChangeCase(self.text(), other).text() != text;
  };
  return Value::Bool(ChangeCase(self.text(), LetterCase::kTitle).text() == text &&
                     (has_case(LetterCase::kLower) || has_case(LetterCase::kUpper)));
}

}  // namespace

Method FindStringPredicate(const std::string& name) {
  static const absl::flat_hash_map<std::string, Method> table = {
      {"isdigit", AllCharacters<IsDigit>},
      {"isdecimal", AllCharacters<IsDecimal>},
      {"isnumeric", AllCharacters<IsNumeric>},
      {"isalpha", AllCharacters<IsAlpha>},
      {"isalnum", AllCharacters<IsAlnum>},
      {"isspace", AllCharacters<IsPythonSpace>},
      {"isupper", IsCase<true>},
      {"islower", IsCase<false>},
      {"isascii", IsAscii},
      {"isprintable", IsPrintableText},
      {"istitle", IsTitle}};
  const auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

}  // namespace baton::jinja
