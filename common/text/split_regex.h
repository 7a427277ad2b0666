#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace baton {

// Splits text by a regular expression that has no scanner of its own, with PCRE2. Immutable after
// compiling; thread-safe. Bounded: where one match takes too many steps, the rest of the stretch
// stays one piece.
class SplitRegex final {
 public:
  // \s means Unicode White_Space and \w letters, marks, digits and connectors, as in the engines
  // the patterns were written for. Error: InvalidArgument with the pattern, the place and PCRE2's
  // reason.
  static StatusOr<SplitRegex> Compile(std::string_view pattern);

  // Appends to `ends` where each match in the valid UTF-8 text[begin, end), and each stretch
  // between matches, ends. Look-around sees only this stretch.
  void Split(std::string_view text, size_t begin, size_t end, std::vector<size_t>& ends) const;

  // Whether the pattern matches the whole of valid UTF-8 `text`.
  bool Matches(std::string_view text) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace baton
