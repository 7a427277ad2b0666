#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace baton {

// Finds the end of one JSON value (RFC 8259) in text that arrives in parts, and checks its syntax.
// A value nests at most kMaxJsonDepth levels. Not thread-safe.
class JsonScanner final {
 public:
  enum class State : uint8_t { kMore, kDone, kBad };

  // Returns how many bytes at the front of `text` belong to the value. Fewer than all: the value is
  // complete, or the next byte is a fault; state() says which. A number ends before the byte that
  // follows it.
  size_t Scan(std::string_view text);
  // The end of all text: completes a number. Returns the state; kMore means that the value is cut
  // off.
  State Finish();
  State state() const { return state_; }
  size_t depth() const { return open_.size(); }  // open brackets
  bool in_string() const {
    return state_ != State::kDone &&
           (expect_ == Expect::kString || expect_ == Expect::kEscape || expect_ == Expect::kHex);
  }

 private:
  enum class Expect : uint8_t {
    kValue,
    kValueOrEnd,  // after '['
    kKeyOrEnd,    // after '{'
    kKey,
    kColon,
    kCommaOrEnd,
    kString,
    kEscape,
    kHex,
    kLiteral,
    kNumber,
  };
  enum class Number : uint8_t { kSign, kZero, kInteger, kPoint, kFraction, kE, kESign, kExponent };

  bool Take(char c);  // false: `c` was not consumed
  bool TakeSpaceOr(char c);
  bool BeginValue(char c);
  bool Close(char c);
  bool TakeNumber(char c);
  bool NumberMayEnd() const;
  void EndValue();
  bool Fail();

  State state_ = State::kMore;
  Expect expect_ = Expect::kValue;
  Number number_ = Number::kSign;
  bool key_ = false;          // the string is a key
  int hex_left_ = 0;          // digits of \uXXXX
  std::string_view literal_;  // the rest of true, false or null
  std::string open_;          // the open '{' and '['
};

// Whether `text` is one JSON value, with white space around it.
bool IsJson(std::string_view text);

}  // namespace baton
