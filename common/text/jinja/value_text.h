#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/text/jinja/value.h"

namespace baton::jinja {

// Python's str(), which {{ }} prints. Undefined prints nothing. The work is spent from `budget`.
StatusOr<MarkedText> ToText(const Value& value, Budget& budget);

// Python's repr(), e.g. 'a', [1, None], {'k': 2.0}.
StatusOr<MarkedText> ToRepr(const Value& value, Budget& budget);

// Whether `value` has no untrusted text.
bool IsTrusted(const Value& value);

// repr() of a float: the fewest digits that read back as the same number.
std::string FloatText(double value);

// str.isprintable of one character. repr() writes such a character as it is, unless it is a quote
// or a backslash.
bool IsPrintable(char32_t c);

// Whether `c` is white space for str.strip() and str.split().
bool IsPythonSpace(char32_t c);

// The text without Python white space at its ends: {first byte kept, one past the last}.
std::pair<size_t, size_t> StripSpaces(std::string_view text, bool left, bool right);

}  // namespace baton::jinja
