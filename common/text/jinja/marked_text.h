#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/text_segment.h"

namespace baton::jinja {

// Text that remembers which of its bytes came from outside (messages, tools) and which from the
// template itself. Where an operation cannot follow single bytes, all of its result counts as from
// outside.
class MarkedText final {
 public:
  MarkedText() = default;
  MarkedText(std::string text, bool trusted);

  const std::string& text() const { return text_; }
  size_t size() const { return text_.size(); }
  bool trusted() const { return untrusted_.empty(); }
  // All of it is trusted, or none.
  bool uniform() const {
    return trusted() || untrusted_[0].end - untrusted_[0].begin == text_.size();
  }
  // Bytes that it takes beyond its own size.
  size_t memory() const { return text_.capacity() + untrusted_.capacity() * sizeof(Range); }

  void Append(const MarkedText& other) { AppendRange(other, 0, other.size()); }
  void AppendRange(const MarkedText& other, size_t begin, size_t end);
  void Append(std::string_view text, bool trusted);
  // The bytes [begin, end), marks kept.
  MarkedText Slice(size_t begin, size_t end) const;

  // Maximal stretches of one kind, in order.
  std::vector<TextSegment> Segments() const;

 private:
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };
  void MarkUntrusted(size_t begin, size_t end);

  std::string text_;
  std::vector<Range> untrusted_;  // ascending, neither touching nor empty
};

}  // namespace baton::jinja
