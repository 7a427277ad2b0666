#include "common/chat_format/python_value.h"

#include <charconv>

#include <fmt/format.h>

#include "common/base/json.h"
#include "common/chat_format/markers.h"
#include "common/chat_format/tagged_value.h"

namespace baton {
namespace {

constexpr size_t kMaxWordBytes = 400;

bool IsWord(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '.' || c == '+' || c == '-';
}

char Closing(char open) {
  return open == '(' ? ')' : open == '[' ? ']' : '}';
}

// Python's escapes of one letter (https://docs.python.org/3/reference/lexical_analysis.html).
std::string_view Unescaped(char c) {
  switch (c) {
    case 'n':
      return "\n";
    case 't':
      return "\t";
    case 'r':
      return "\r";
    case 'b':
      return "\b";
    case 'f':
      return "\f";
    case '\\':
      return "\\";
    case '\'':
      return "'";
    case '"':
      return "\"";
    default:
      return "";
  }
}

}  // namespace

PythonValue::State PythonValue::Read(std::string_view& text, std::string& json) {
  while (!text.empty() && state_ == State::kMore) {
    if (Take(text.front(), json)) text.remove_prefix(1);
  }
  return state_;
}

char PythonValue::quote() const {
  const bool in_string =
      expect_ == Expect::kString || expect_ == Expect::kEscape || expect_ == Expect::kHex;
  return in_string ? quote_ : '\0';
}

bool PythonValue::Take(char c, std::string& json) {
  switch (expect_) {
    case Expect::kString:
    case Expect::kEscape:
      return TakeInString(c, json);
    case Expect::kHex:
      return TakeHex(c, json);
    case Expect::kWord:
      if (!IsWord(c)) return EndWord(json);
      word_ += c;
      return word_.size() <= kMaxWordBytes || Fail();
    default:
      return TakeSpaceOr(c, json);
  }
}

bool PythonValue::TakeInString(char c, std::string& json) {
  if (c == kSpecialSign) return Fail();
  if (expect_ == Expect::kEscape) {
    expect_ = Expect::kString;
    word_.clear();
    hex_digits_ = c == 'x' ? 2 : c == 'u' ? 4 : 0;
    if (hex_digits_ > 0) {
      expect_ = Expect::kHex;
      return true;
    }
    if (c == '\n') return true;  // a continued line
    const std::string_view plain = Unescaped(c);
    // An unknown escape stays as it is.
    AppendEscaped(plain.empty() ? fmt::format("\\{}", c) : std::string(plain), json);
    return true;
  }
  if (c == '\\') {
    expect_ = Expect::kEscape;
  } else if (c != quote_) {
    AppendEscaped(std::string_view(&c, 1), json);
  } else {
    json += '"';
    expect_ = Expect::kColon;
    if (!key_) EndValue();
  }
  return true;
}

bool PythonValue::TakeHex(char c, std::string& json) {
  if (std::string_view("0123456789abcdefABCDEF").find(c) == std::string_view::npos) return Fail();
  word_ += c;
  if (word_.size() < hex_digits_) return true;
  uint32_t code = 0;
  std::from_chars(word_.data(), word_.data() + word_.size(), code, 16);
  json += fmt::format("\\u{:04x}", code);
  expect_ = Expect::kString;
  return true;
}

bool PythonValue::TakeSpaceOr(char c, std::string& json) {
  if (IsSpace(c)) return true;
  const bool may_close = expect_ == Expect::kValueOrEnd || expect_ == Expect::kKeyOrEnd ||
                         expect_ == Expect::kCommaOrEnd;
  if (may_close && c == Closing(open_.back())) {
    json += open_.back() == '{' ? '}' : ']';
    open_.pop_back();
    EndValue();
    return true;
  }
  switch (expect_) {
    case Expect::kKeyOrEnd:
      if (c != '"' && c != '\'') return Fail();
      Separate(json);
      key_ = true;
      quote_ = c;
      json += '"';
      expect_ = Expect::kString;
      return true;
    case Expect::kColon:
      if (c != ':') return Fail();
      json += ": ";
      separate_ = false;
      expect_ = Expect::kValue;
      return true;
    case Expect::kCommaOrEnd:
      if (c != ',') return Fail();
      separate_ = true;
      expect_ = open_.back() == '{' ? Expect::kKeyOrEnd : Expect::kValueOrEnd;
      return true;
    default:
      return BeginValue(c, json);
  }
}

bool PythonValue::BeginValue(char c, std::string& json) {
  Separate(json);
  if (c == '[' || c == '(' || c == '{') {
    if (open_.size() == static_cast<size_t>(kMaxJsonDepth)) return Fail();
    open_ += c;
    json += c == '{' ? '{' : '[';
    expect_ = c == '{' ? Expect::kKeyOrEnd : Expect::kValueOrEnd;
    return true;
  }
  if (c == '"' || c == '\'') {
    key_ = false;
    quote_ = c;
    json += '"';
    expect_ = Expect::kString;
    return true;
  }
  if (!IsWord(c)) return Fail();
  word_ = c;
  expect_ = Expect::kWord;
  return true;
}

bool PythonValue::EndWord(std::string& json) {
  if (word_ == "True") word_ = "true";
  if (word_ == "False") word_ = "false";
  if (word_ == "None") word_ = "null";
  if (!IsJson(word_)) return Fail();
  json += word_;
  EndValue();
  return false;
}

void PythonValue::Separate(std::string& json) {
  if (separate_) json += ", ";
  separate_ = false;
}

void PythonValue::EndValue() {
  if (open_.empty()) {
    state_ = State::kDone;
  } else {
    expect_ = Expect::kCommaOrEnd;
  }
}

bool PythonValue::Fail() {
  state_ = State::kBad;
  return false;
}

}  // namespace baton
