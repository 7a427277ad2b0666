#include "common/chat_format/tagged_value.h"

#include <fmt/format.h>

#include "common/chat_format/json_scanner.h"
#include "common/chat_format/markers.h"

namespace baton {
namespace {

// A value that is not a string, as JSON. Models trained on Python write True, False and None.
std::string JsonOf(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  if (text == "True") return "true";
  if (text == "False") return "false";
  if (text == "None") return "null";
  if (IsJson(text)) return std::string(text);
  std::string json = "\"";
  AppendEscaped(text, json);
  return json + '"';
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
  if (type_ != ParameterType::kString) {
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
  if (type_ == ParameterType::kString) return out.Arguments(begun_ ? "\"" : "\"\"");
  out.Arguments(JsonOf(text_));
}

}  // namespace baton
