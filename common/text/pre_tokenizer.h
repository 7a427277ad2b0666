#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/status.h"
#include "common/text/piece_scanner.h"
#include "common/text/split_regex.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// Splits normalised text into pieces. Merges never cross the border of a piece. Immutable, so
// thread-safe.
class PreTokenizer final {
 public:
  // Error: InvalidArgument for a regular expression that does not compile.
  static StatusOr<PreTokenizer> Create(const std::vector<SplitStep>& steps);

  // The end of each piece of `text`, which is valid UTF-8; ascending, the last one is text.size().
  // Empty text has no pieces.
  std::vector<size_t> Split(std::string_view text) const;

 private:
  struct Digits {
    bool runs = false;
    UnicodeClasses classes;
  };
  struct BeforeMetaspace {};
  using Step = std::variant<PieceScanner, SplitRegex, Digits, BeforeMetaspace>;

  static void Apply(
      const Step& step, std::string_view text, size_t begin, size_t end, std::vector<size_t>& ends);

  std::vector<Step> steps_;
};

}  // namespace baton
