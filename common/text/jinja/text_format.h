#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/text/jinja/value.h"

// Python's formatting of values: format(), str.format and the operator %.

namespace baton::jinja {

class Interpreter;

// Python's format specification mini-language:
// [[fill]align][sign][#][0][width][grouping][.precision][type].
struct FormatSpec {
  std::string fill = " ";  // one character
  char align = '\0';       // < > ^ =, or '\0' for the default of the type
  char sign = '-';         // - + or a space
  bool alternate = false;  // #
  size_t width = 0;        // characters
  char grouping = '\0';    // , or _
  std::optional<int> precision;
  char type = '\0';
};

// Parses a specification. InvalidArgument for other text.
StatusOr<FormatSpec> ParseFormatSpec(std::string_view text);

// format(value, spec). InvalidArgument when the type of `value` has no such format.
StatusOr<MarkedText> FormatValue(const Value& value, std::string_view spec, Budget& budget);

// str.format: {} {0} {name} with attributes, indices, conversions and specifications. Errors name
// `function`, which the template called.
StatusOr<Value> FormatBraces(Interpreter& interpreter,
                             std::string_view function,
                             const MarkedText& format,
                             const Arguments& arguments);

// `format % values`: one value, a tuple of values, or a dict for conversions with names.
StatusOr<Value> FormatPercent(const MarkedText& format, const Value& values, Budget& budget);

}  // namespace baton::jinja
