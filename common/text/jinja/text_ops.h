#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/marked_text.h"

namespace baton::jinja {

// Python's string operations on marked text. Bytes that an operation copies keep their marks.

// A range of text, as byte offsets.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
};

// The first place at or after `from` where `part` begins in `text`, and the last place; npos when
// there is none. Takes linear time in all cases (the search of std::string is quadratic at worst).
size_t FindText(std::string_view text, std::string_view part, size_t from);
size_t FindLastText(std::string_view text, std::string_view part);

// str.replace. Replaces at most `count` times if `count` is not negative.
StatusOr<MarkedText> Replace(const MarkedText& text,
                             const MarkedText& from,
                             const MarkedText& to,
                             int64_t count,
                             Budget& budget);

// str.split, or str.rsplit with `from_right`. Splits at `separator`, or at runs of white space when
// there is none; at most `limit` times if `limit` is not negative. The separator is not empty.
StatusOr<std::vector<TextSpan>> Split(std::string_view text,
                                      std::optional<std::string_view> separator,
                                      int64_t limit,
                                      bool from_right,
                                      Budget& budget);
StatusOr<std::vector<TextSpan>> SplitLines(std::string_view text, bool keep_ends, Budget& budget);

// str.strip, lstrip and rstrip. Strips `characters`, or white space when there are none.
MarkedText Strip(const MarkedText& text,
                 std::optional<std::string_view> characters,
                 bool left,
                 bool right);

enum class LetterCase { kUpper, kLower, kTitle, kCapitalized, kSwapped };
// Uses the simple case mappings, and SS for ß. kTitle works like str.title().
MarkedText ChangeCase(const MarkedText& text, LetterCase target);

// Jinja's title filter: like kTitle, but words start only after spaces and -({[<.
MarkedText TitleWords(const MarkedText& text);

// The `count` indices first, first + stride, … of Python's sequence[start:stop:step].
struct SliceRange {
  int64_t first = 0;
  int64_t count = 0;
  int64_t stride = 1;
};
// The slice of a sequence of `size` items. Negative `start` and `stop` count from the end. `step`
// must not be 0.
SliceRange SliceOf(std::optional<int64_t> start,
                   std::optional<int64_t> stop,
                   int64_t step,
                   int64_t size);

// The characters of `text` that are in `range`. `size` is the number of characters of `text`.
StatusOr<MarkedText> SliceText(const MarkedText& text,
                               int64_t size,
                               SliceRange range,
                               Budget& budget);

// `text` repeated `count` times. ResourceExhausted when the result does not fit.
StatusOr<MarkedText> Repeat(const MarkedText& text, int64_t count, Budget& budget);

}  // namespace baton::jinja
