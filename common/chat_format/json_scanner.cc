#include "common/chat_format/json_scanner.h"

#include "common/base/json.h"
#include "common/chat_format/markers.h"

namespace baton {
namespace {

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

bool IsHex(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

bool EndsPlainText(char c) {
  return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == kSpecialSign;
}

}  // namespace

size_t JsonScanner::Scan(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && state_ == State::kMore) {
    if (expect_ == Expect::kString) {
      while (at < text.size() && !EndsPlainText(text[at])) ++at;
      if (at == text.size()) break;
    }
    if (Take(text[at])) ++at;
  }
  return at;
}

JsonScanner::State JsonScanner::Finish() {
  if (state_ == State::kMore && expect_ == Expect::kNumber && NumberMayEnd()) EndValue();
  return state_;
}

bool JsonScanner::Take(char c) {
  switch (expect_) {
    case Expect::kString:
      if (c == '\\') {
        expect_ = Expect::kEscape;
      } else if (c != '"') {
        return Fail();
      } else if (key_) {
        expect_ = Expect::kColon;
      } else {
        EndValue();
      }
      return true;
    case Expect::kEscape:
      if (std::string_view("\"\\/bfnrtu").find(c) == std::string_view::npos) return Fail();
      hex_left_ = 4;
      expect_ = c == 'u' ? Expect::kHex : Expect::kString;
      return true;
    case Expect::kHex:
      if (!IsHex(c)) return Fail();
      if (--hex_left_ == 0) expect_ = Expect::kString;
      return true;
    case Expect::kLiteral:
      if (c != literal_.front()) return Fail();
      literal_.remove_prefix(1);
      if (literal_.empty()) EndValue();
      return true;
    case Expect::kNumber:
      return TakeNumber(c);
    default:
      return TakeSpaceOr(c);
  }
}

bool JsonScanner::TakeSpaceOr(char c) {
  if (IsSpace(c)) return true;
  switch (expect_) {
    case Expect::kValueOrEnd:
      return c == ']' ? Close(c) : BeginValue(c);
    case Expect::kKeyOrEnd:
    case Expect::kKey:
      if (c == '}' && expect_ == Expect::kKeyOrEnd) return Close(c);
      if (c != '"') return Fail();
      key_ = true;
      expect_ = Expect::kString;
      return true;
    case Expect::kColon:
      if (c != ':') return Fail();
      expect_ = Expect::kValue;
      return true;
    case Expect::kCommaOrEnd:
      if (c != ',') return Close(c);
      expect_ = open_.back() == '{' ? Expect::kKey : Expect::kValue;
      return true;
    default:
      return BeginValue(c);
  }
}

bool JsonScanner::BeginValue(char c) {
  if (c == '{' || c == '[') {
    if (open_.size() == static_cast<size_t>(kMaxJsonDepth)) return Fail();
    open_.push_back(c);
    expect_ = c == '{' ? Expect::kKeyOrEnd : Expect::kValueOrEnd;
    return true;
  }
  if (c == '"') {
    key_ = false;
    expect_ = Expect::kString;
    return true;
  }
  if (c == '-' || IsDigit(c)) {
    number_ = c == '-' ? Number::kSign : c == '0' ? Number::kZero : Number::kInteger;
    expect_ = Expect::kNumber;
    return true;
  }
  for (const std::string_view literal : {"true", "false", "null"}) {
    if (c != literal.front()) continue;
    literal_ = literal.substr(1);
    expect_ = Expect::kLiteral;
    return true;
  }
  return Fail();
}

bool JsonScanner::Close(char c) {
  if (open_.empty() || c != (open_.back() == '{' ? '}' : ']')) return Fail();
  open_.pop_back();
  EndValue();
  return true;
}

bool JsonScanner::TakeNumber(char c) {
  const bool digit = IsDigit(c);
  const bool exponent = c == 'e' || c == 'E';
  switch (number_) {
    case Number::kSign:
      if (!digit) return Fail();
      number_ = c == '0' ? Number::kZero : Number::kInteger;
      return true;
    case Number::kZero:
    case Number::kInteger:
      if (digit && number_ == Number::kInteger) return true;
      if (digit) return Fail();
      if (c == '.') number_ = Number::kPoint;
      if (exponent) number_ = Number::kE;
      if (c == '.' || exponent) return true;
      break;
    case Number::kPoint:
      if (!digit) return Fail();
      number_ = Number::kFraction;
      return true;
    case Number::kFraction:
      if (digit) return true;
      if (exponent) number_ = Number::kE;
      if (exponent) return true;
      break;
    case Number::kE:
    case Number::kESign: {
      const bool sign = number_ == Number::kE && (c == '+' || c == '-');
      if (!digit && !sign) return Fail();
      number_ = sign ? Number::kESign : Number::kExponent;
      return true;
    }
    case Number::kExponent:
      if (digit) return true;
      break;
  }
  EndValue();
  return false;
}

bool JsonScanner::NumberMayEnd() const {
  return number_ == Number::kZero || number_ == Number::kInteger || number_ == Number::kFraction ||
         number_ == Number::kExponent;
}

void JsonScanner::EndValue() {
  if (open_.empty()) {
    state_ = State::kDone;
  } else {
    expect_ = Expect::kCommaOrEnd;
  }
}

bool JsonScanner::Fail() {
  state_ = State::kBad;
  return false;
}

bool IsJson(std::string_view text) {
  JsonScanner scanner;
  const size_t end = scanner.Scan(text);
  if (scanner.Finish() != JsonScanner::State::kDone) return false;
  return text.find_first_not_of(" \n\t\r", end) == std::string_view::npos;
}

}  // namespace baton
