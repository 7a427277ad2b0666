#include "common/grammar/regex/code_points.h"

#include <algorithm>

namespace baton {
namespace {

constexpr char32_t kLast = 0x10FFFF;
constexpr char32_t kBeforeSurrogates = 0xD7FF;
constexpr char32_t kAfterSurrogates = 0xE000;

}  // namespace

CodePoints::CodePoints(const std::vector<Range>& ranges) {
  std::vector<Range> valid;
  for (const Range& range : ranges) {
    const Range below = {range.first, std::min(range.last, kBeforeSurrogates)};
    const Range above = {std::max(range.first, kAfterSurrogates), std::min(range.last, kLast)};
    for (const Range& part : {below, above}) {
      if (part.first <= part.last) valid.push_back(part);
    }
  }
  std::ranges::sort(valid, {}, &Range::first);
  for (const Range& range : valid) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CodePoints CodePoints::All() {
  return CodePoints({{0, kLast}});
}

CodePoints CodePoints::Complement() const {
  std::vector<Range> others;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) others.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) others.push_back({next, kLast});
  return CodePoints(others);
}

CodePoints CodePoints::And(const CodePoints& other) const {
  std::vector<Range> both;
  auto at = other.ranges_.begin();
  for (const Range& range : ranges_) {
    while (at != other.ranges_.end() && at->last < range.first) ++at;
    for (auto one = at; one != other.ranges_.end() && one->first <= range.last; ++one) {
      both.push_back({std::max(range.first, one->first), std::min(range.last, one->last)});
    }
  }
  return CodePoints(both);
}

bool CodePoints::Has(char32_t character) const {
  const auto above = std::ranges::upper_bound(ranges_, character, {}, &Range::first);
  return above != ranges_.begin() && character <= std::prev(above)->last;
}

}  // namespace baton
