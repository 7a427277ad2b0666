#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

// Looks for marker strings in text. Immutable, thread-safe.
class Markers final {
 public:
  explicit Markers(std::vector<std::string_view> markers);

  struct Found {
    size_t at = 0;    // of the first marker, or of the first possible beginning of one
    int marker = -1;  // the index; -1: no whole marker in the text
  };
  // A marker that may begin at the end of `text`, or be the beginning of a longer one, counts as a
  // beginning. `at` is the length of the text when there is none. `last`: no text follows.
  Found Find(std::string_view text, bool last = false) const;

  std::string_view operator[](int marker) const { return markers_[static_cast<size_t>(marker)]; }
  bool empty() const { return markers_.empty(); }

 private:
  std::vector<std::string_view> markers_;  // of literals
  std::string first_;                      // the different first bytes
};

// Matches one literal in text that arrives in parts.
class Literal final {
 public:
  explicit Literal(std::string_view text) : rest_(text) {}

  // False: `c` is not the next byte.
  bool Take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

inline bool IsSpace(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

}  // namespace baton
