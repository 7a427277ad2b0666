#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/text_segment.h"

namespace baton::jinja {

// Text in which each byte is marked as trusted (from the template itself) or untrusted (from
// outside: messages, tools). When an operation cannot track single bytes, its whole result is
// untrusted if any of its input is.
class MarkedText final {
 public:
  MarkedText() = default;
  MarkedText(std::string text, bool trusted);

  const std::string& text() const { return text_; }
  size_t size() const { return text_.size(); }
  bool trusted() const { return untrusted_.empty(); }
  // Whether all bytes are trusted, or all are untrusted.
  bool uniform() const {
    return trusted() || untrusted_[0].end - untrusted_[0].begin == text_.size();
  }
  // Bytes that it occupies beyond sizeof(MarkedText).
  size_t memory() const { return text_.capacity() + untrusted_.capacity() * sizeof(Range); }

  void Append(const MarkedText& other) { AppendRange(other, 0, other.size()); }
  void AppendRange(const MarkedText& other, size_t begin, size_t end);
  void Append(std::string_view text, bool trusted);
  // The bytes [begin, end) with their marks.
  MarkedText Slice(size_t begin, size_t end) const;

  // The text in order, as maximal segments that are wholly trusted or wholly untrusted.
  std::vector<TextSegment> Segments() const;

 private:
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };
  void MarkUntrusted(size_t begin, size_t end);

  std::string text_;
  std::vector<Range> untrusted_;  // ascending, not adjacent, not empty
};

}  // namespace baton::jinja
