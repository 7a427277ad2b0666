#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

// Shortens a text from outside so that a message can quote it. A text of more than `most` bytes is
// cut between two UTF-8 characters, and "…" is appended.
std::string Shortened(std::string_view text, size_t most);

}  // namespace baton
