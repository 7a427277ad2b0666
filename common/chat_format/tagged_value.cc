#include "common/chat_format/tagged_value.h"

#include <charconv>

#include <fmt/format.h>

#include "common/chat_format/json_scanner.h"
#include "common/chat_format/markers.h"

namespace baton {
namespace {

// The types of a text that is JSON.
ValueTypes TypesOfJson(std::string_view json) {
  switch (json.front()) {
    case '"':
      return ValueTypes::kString;
    case '{':
      return ValueTypes::kObject;
    case '[':
      return ValueTypes::kArray;
    case 't':
    case 'f':
      return ValueTypes::kBoolean;
    case 'n':
      return ValueTypes::kNull;
    default:
      break;
  }
  if (json.find_first_of(".eE") == std::string_view::npos) return ValueTypes::kInteger;
  double number = 0;
  std::from_chars(json.data(), json.data() + json.size(), number);
  return TypesOfNumber(number);
}

// A value that need not be a string, as JSON: what it is where its type allows that, else a string.
// Models trained on Python write True, False and None.
std::string JsonOf(std::string_view text, ParameterType type) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  std::string_view json = text;
  if (text == "True") json = "true";
  if (text == "False") json = "false";
  if (text == "None") json = "null";
  const bool text_allowed = type.types.Has(ValueTypes::kString);
  if (IsJson(json) && (!text_allowed || type.types.Has(TypesOfJson(json)))) {
    return std::string(json);
  }
  std::string quoted = "\"";
  AppendEscaped(text, quoted);
  return quoted + '"';
}

}  // namespace

void AppendEscaped(std::string_view text, std::string& json) {
  for (const char c : text) {
    switch (c) {
      case '"':
        json += "\\\"";
        break;
      case '\\':
        json += "\\\\";
        break;
      case '\n':
        json += "\\n";
        break;
      case '\t':
        json += "\\t";
        break;
      case '\r':
        json += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          fmt::format_to(std::back_inserter(json), "\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          json += c;
        }
    }
  }
}

TaggedValue::TaggedValue(ParameterType type, bool in_lines) : type_(type), in_lines_(in_lines) {}

void TaggedValue::Append(std::string_view text, ChatEvents& out) {
  if (text.empty()) return;
  if (!type_.is_text()) {
    text_ += text;
    return;
  }
  std::string json = begun_ ? "" : "\"";
  if (!begun_ && in_lines_ && text.front() == '\n') text.remove_prefix(1);
  begun_ = true;
  if (!text.empty()) {
    AppendEscaped(text_, json);
    text_.clear();
    if (in_lines_ && text.back() == '\n') {
      text_ = "\n";
      text.remove_suffix(1);
    }
    AppendEscaped(text, json);
  }
  out.Arguments(json);
}

void TaggedValue::Finish(ChatEvents& out) {
  if (type_.is_text()) return out.Arguments(begun_ ? "\"" : "\"\"");
  out.Arguments(JsonOf(text_, type_));
}

}  // namespace baton
