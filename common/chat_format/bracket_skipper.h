#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "common/chat_format/call_reader.h"
#include "common/chat_format/markers.h"

namespace baton {

// Finds the end of a broken call in a list of calls: where its brackets are closed. Brackets in
// strings do not count. Not thread-safe.
class BracketSkipper final {
 public:
  // The text so far has `depth` open brackets. `quote`: of the string in which it ends, or 0.
  // `quotes`: all quotation marks of the language.
  BracketSkipper(size_t depth, char quote, std::string_view quotes)
      : depth_(depth), quote_(quote), quotes_(quotes) {}

  // Returns how many bytes at the front of `text` belong to the broken call. Stops before a special
  // token, which no call contains.
  size_t Skip(std::string_view text) {
    size_t at = 0;
    while (at < text.size() && depth_ > 0 && text[at] != kSpecialSign) Take(text[at++]);
    return at;
  }
  bool done() const { return depth_ == 0; }

 private:
  void Take(char c) {
    if (quote_ != 0) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == quote_) {
        quote_ = 0;
      }
    } else if (quotes_.find(c) != std::string_view::npos) {
      quote_ = c;
    } else if (c == '{' || c == '[' || c == '(') {
      ++depth_;
    } else if (c == '}' || c == ']' || c == ')') {
      --depth_;
    }
  }

  size_t depth_;
  char quote_;
  std::string_view quotes_;
  bool escaped_ = false;
};

// Reads text of the broken call that `skipper`, which is set, skips. Resets it where the call ends.
inline CallReader::State SkipBrokenCall(std::optional<BracketSkipper>& skipper,
                                        std::string_view& text) {
  const size_t length = skipper->Skip(text);
  if (length == 0) return CallReader::State::kBad;
  text.remove_prefix(length);
  if (skipper->done()) skipper.reset();
  return CallReader::State::kNotCall;
}

}  // namespace baton
