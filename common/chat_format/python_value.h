#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/chat_format/json_scanner.h"

namespace baton {

// Converts one literal of Python (string, number, True, False, None, list, tuple, dict) to JSON, as
// it arrives. Not thread-safe.
class PythonValue final {
 public:
  using State = JsonScanner::State;

  // Removes the bytes of the value from the front of `text` and appends JSON to `json`. A number or
  // a word ends before the byte that follows it.
  State Read(std::string_view& text, std::string& json);
  size_t depth() const { return open_.size(); }  // open brackets
  // The quotation mark of the string in which the text so far ends, or 0.
  char quote() const;

 private:
  enum class Expect : uint8_t {
    kValue,
    kValueOrEnd,
    kKeyOrEnd,
    kColon,
    kCommaOrEnd,
    kString,
    kEscape,
    kHex,
    kWord,
  };

  bool Take(char c, std::string& json);  // false: `c` was not consumed
  bool TakeInString(char c, std::string& json);
  bool TakeHex(char c, std::string& json);
  bool TakeSpaceOr(char c, std::string& json);
  bool BeginValue(char c, std::string& json);
  bool EndWord(std::string& json);
  void Separate(std::string& json);
  void EndValue();
  bool Fail();

  State state_ = State::kMore;
  Expect expect_ = Expect::kValue;
  std::string open_;       // the open brackets
  bool separate_ = false;  // a comma belongs before the next value
  bool key_ = false;       // the string is a key
  char quote_ = 0;
  std::string word_;       // of a number or name, or the digits of an escape
  size_t hex_digits_ = 0;  // that the escape has
};

}  // namespace baton
