#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace baton {

// The pattern for PCRE2 that matches as `pattern` does in Oniguruma, the engine of Hugging Face's
// tokenizers, where the two read the same text in different ways:
// - \s is White_Space, and \w letters, marks, digits and connectors; so are the borders \b and \B;
// - [a[bc]] is the union of two sets, and [a&&[^b]] the intersection. PCRE2 reads brackets and
//   ampersands there as characters.
// Error: InvalidArgument for sets that are not closed, or nested too deeply.
StatusOr<std::string> Pcre2Of(std::string_view pattern);

}  // namespace baton
