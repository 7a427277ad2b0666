#pragma once

#include <cstddef>
#include <string_view>

namespace baton {

// The number of single-character edits that turn `a` into `b` (Levenshtein 1966).
size_t EditDistance(std::string_view a, std::string_view b);

}  // namespace baton
