#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

constexpr char32_t kReplacementCharacter = 0xFFFD;

// One decoded character and the bytes it took.
struct CodePoint {
  char32_t value = 0;
  size_t length = 0;
};

// The character at `pos` < text.size(). Ill-formed bytes give U+FFFD over one maximal subpart
// (Unicode 15, section 3.9, table 3-7), so `length` is at least 1 and never passes the end.
CodePoint DecodeUtf8(std::string_view text, size_t pos);

void AppendUtf8(std::string& out, char32_t value);

bool IsValidUtf8(std::string_view text);

// How many bytes at the beginning of `text` are valid UTF-8.
size_t ValidUtf8Prefix(std::string_view text);

// `text` with U+FFFD in place of each maximal ill-formed subpart: what Python's and Rust's lossy
// decoding give. The result is valid UTF-8; valid text comes back unchanged.
std::string ReplaceInvalidUtf8(std::string_view text);

// The number of bytes at the end of `text` that begin a character which later bytes may complete (0
// to 3). What precedes them never changes its meaning, whatever follows.
size_t IncompleteTail(std::string_view text);

// The number of characters in valid UTF-8.
size_t CountCodePoints(std::string_view text);

}  // namespace baton
