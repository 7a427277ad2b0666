#pragma once

#include <string_view>

#include "common/base/status.h"
#include "common/text/jinja/ast.h"

namespace baton::jinja {

// Parses a Jinja template into statements. Errors: InvalidArgument with the line; Unimplemented for
// tags that need other files (include, extends, import, from, block).
StatusOr<Block> Parse(std::string_view source);

}  // namespace baton::jinja
