#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace baton {

// Splits text by a regular expression that has no hand-written scanner, with PCRE2. Immutable after
// compiling, so thread-safe. The work is bounded: when one match takes too many steps, the rest of
// the text stays one piece.
class SplitRegex final {
 public:
  // `pattern` has Oniguruma's syntax, as far as Pcre2Of (oniguruma_syntax.h) and PCRE2 know it.
  // Error: InvalidArgument with the pattern, the place and the reason.
  static StatusOr<SplitRegex> Compile(std::string_view pattern);

  // Splits text[begin, end), which is valid UTF-8, into matches and the text between them. Appends
  // the end of each to `ends`. Look-around is limited to [begin, end).
  void Split(std::string_view text, size_t begin, size_t end, std::vector<size_t>& ends) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace baton
