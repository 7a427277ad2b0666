#pragma once

#include <string_view>

namespace baton {

// U+2581 '▁', which stands for a space in SentencePiece vocabularies.
constexpr std::string_view kMetaspace = "\xE2\x96\x81";

}  // namespace baton
