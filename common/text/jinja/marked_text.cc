#include "common/text/jinja/marked_text.h"

#include <algorithm>
#include <utility>

namespace baton::jinja {

MarkedText::MarkedText(std::string text, bool trusted) : text_(std::move(text)) {
  if (!trusted) MarkUntrusted(0, text_.size());
}

void MarkedText::MarkUntrusted(size_t begin, size_t end) {
  if (begin == end) return;
  if (!untrusted_.empty() && untrusted_.back().end == begin) {
    untrusted_.back().end = end;
  } else {
    untrusted_.push_back({begin, end});
  }
}

void MarkedText::Append(std::string_view text, bool trusted) {
  const size_t begin = text_.size();
  text_.append(text);
  if (!trusted) MarkUntrusted(begin, text_.size());
}

void MarkedText::AppendRange(const MarkedText& other, size_t begin, size_t end) {
  const size_t base = text_.size();
  text_.append(other.text_, begin, end - begin);
  auto range = std::partition_point(other.untrusted_.begin(),
                                    other.untrusted_.end(),
                                    [begin](const Range& r) { return r.end <= begin; });
  for (; range != other.untrusted_.end() && range->begin < end; ++range) {
    MarkUntrusted(base + std::max(range->begin, begin) - begin,
                  base + std::min(range->end, end) - begin);
  }
}

MarkedText MarkedText::Slice(size_t begin, size_t end) const {
  MarkedText slice;
  slice.AppendRange(*this, begin, end);
  return slice;
}

std::vector<TextSegment> MarkedText::Segments() const {
  std::vector<TextSegment> segments;
  const auto add = [&](size_t begin, size_t end, bool trusted) {
    if (begin < end) segments.push_back({text_.substr(begin, end - begin), trusted});
  };
  size_t done = 0;
  for (const Range& range : untrusted_) {
    add(done, range.begin, true);
    add(range.begin, range.end, false);
    done = range.end;
  }
  add(done, text_.size(), true);
  return segments;
}

}  // namespace baton::jinja
