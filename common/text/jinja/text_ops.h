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

// str.replace; at most `count` times when that is not negative.
StatusOr<MarkedText> Replace(const MarkedText& text,
                             const MarkedText& from,
                             const MarkedText& to,
                             int64_t count,
                             Budget& budget);

// str.split: by `separator`, or by runs of white space without one; at most `limit` cuts when that
// is not negative. `from_right` makes it str.rsplit. InvalidArgument for an empty separator.
StatusOr<std::vector<MarkedText>> Split(const MarkedText& text,
                                        std::optional<std::string_view> separator,
                                        int64_t limit,
                                        bool from_right);
std::vector<MarkedText> SplitLines(const MarkedText& text, bool keep_ends);

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

// Each character as text of its own.
std::vector<MarkedText> Characters(const MarkedText& text);

// `text`, `count` times; ResourceExhausted when that does not fit.
StatusOr<MarkedText> Repeat(const MarkedText& text, int64_t count, Budget& budget);

}  // namespace baton::jinja
