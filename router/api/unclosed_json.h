#pragma once

#include <string>
#include <string_view>

namespace baton::router {

// Follows the JSON text of a call's arguments while it arrives, to make it unreadable when the call
// fails. Many clients complete JSON that ends early (langchain's parse_partial_json, jiter's
// partial mode), or ignore what follows it; none goes on behind a bracket that closes nothing. Not
// thread-safe.
class UnclosedJson final {
 public:
  void Append(std::string_view text);
  // What makes the text so far unreadable, whatever follows.
  std::string WrongEnd() const;

 private:
  std::string open_;  // the brackets that are not closed
  bool in_string_ = false;
  bool escaped_ = false;  // the text ends with the backslash of an escape
};

}  // namespace baton::router
