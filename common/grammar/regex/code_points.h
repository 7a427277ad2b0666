#pragma once

#include <span>
#include <vector>

namespace baton {

// A set of characters of Unicode. Surrogates, which UTF-8 cannot write, are in no set.
class CodePoints final {
 public:
  struct Range {
    char32_t first;
    char32_t last;
    bool operator==(const Range&) const = default;
  };

  CodePoints() = default;
  // The ranges in any order; they may overlap.
  explicit CodePoints(const std::vector<Range>& ranges);
  static CodePoints All();

  CodePoints Complement() const;
  CodePoints And(const CodePoints& other) const;
  bool empty() const { return ranges_.empty(); }
  bool Has(char32_t character) const;
  // Sorted, apart from each other.
  std::span<const Range> ranges() const { return ranges_; }
  bool operator==(const CodePoints&) const = default;

 private:
  std::vector<Range> ranges_;
};

}  // namespace baton
