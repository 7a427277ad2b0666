#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/text/jinja/value.h"

namespace baton::jinja {

// Python's str(): what {{ }} prints. Undefined prints nothing. Work is paid from `budget`.
StatusOr<MarkedText> ToText(const Value& value, Budget& budget);

// Python's repr(), e.g. 'a', [1, None], {'k': 2.0}.
StatusOr<MarkedText> ToRepr(const Value& value, Budget& budget);

// Whether no text from outside is inside.
bool IsTrusted(const Value& value);

// repr() of a float: the shortest digits that read back the same.
std::string FloatText(double value);

// Python's white space: what str.strip() and str.split() take off.
// What repr() shows as it is.
bool IsPrintable(char32_t c);

bool IsPythonSpace(char32_t c);

// The text without Python white space at its ends: {first byte kept, one past the last}.
std::pair<size_t, size_t> StripSpaces(std::string_view text, bool left, bool right);

}  // namespace baton::jinja
