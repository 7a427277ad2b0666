#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

// A text from outside as a message may repeat it: what is longer than `most` bytes is cut between
// two UTF-8 characters and followed by "…".
std::string Shortened(std::string_view text, size_t most);

}  // namespace baton
