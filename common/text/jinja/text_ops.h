#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/marked_text.h"

namespace baton::jinja {

// Python's string operations on marked text; marks of single bytes are kept where bytes are.

// A stretch of text, in bytes.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
};

// Where `part` begins in `text` at or after `from`, and where it begins last; npos when nowhere. In
// linear time, whatever the two are (std::string's own search is quadratic at worst).
size_t FindText(std::string_view text, std::string_view part, size_t from);
size_t FindLastText(std::string_view text, std::string_view part);

// str.replace; at most `count` times when that is not negative.
StatusOr<MarkedText> Replace(const MarkedText& text,
                             const MarkedText& from,
                             const MarkedText& to,
                             int64_t count,
                             Budget& budget);

// str.split: by `separator`, or by runs of white space without one; at most `limit` cuts when that
// is not negative. `from_right` makes it str.rsplit. InvalidArgument for an empty separator.
StatusOr<std::vector<TextSpan>> Split(std::string_view text,
                                      std::optional<std::string_view> separator,
                                      int64_t limit,
                                      bool from_right,
                                      Budget& budget);
StatusOr<std::vector<TextSpan>> SplitLines(std::string_view text, bool keep_ends, Budget& budget);

// str.strip, lstrip, rstrip: of `characters`, or of white space without any.
MarkedText Strip(const MarkedText& text,
                 std::optional<std::string_view> characters,
                 bool left,
                 bool right);

enum class LetterCase { kUpper, kLower, kTitle, kCapitalized, kSwapped };
// Simple case mappings, and SS for ß. kTitle: as str.title().
MarkedText ChangeCase(const MarkedText& text, LetterCase target);

// Jinja's title filter: like kTitle, but words start only after spaces and -({[<.
MarkedText TitleWords(const MarkedText& text);

// The places first, first + stride, … of Python's sequence[start:stop:step].
struct SliceRange {
  int64_t first = 0;
  int64_t count = 0;
  int64_t stride = 1;
};
// Of a sequence of `size`; `start` and `stop` count from the end when negative. `step` is not 0.
SliceRange SliceOf(std::optional<int64_t> start,
                   std::optional<int64_t> stop,
                   int64_t step,
                   int64_t size);

// The characters of `text`, which has `size` of them, that are in `range`.
StatusOr<MarkedText> SliceText(const MarkedText& text,
                               int64_t size,
                               SliceRange range,
                               Budget& budget);

// `text`, `count` times; ResourceExhausted when that does not fit.
StatusOr<MarkedText> Repeat(const MarkedText& text, int64_t count, Budget& budget);

}  // namespace baton::jinja
