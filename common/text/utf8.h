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

// The character at `pos` < text.size(). A maximal ill-formed subpart (Unicode 15, section 3.9,
// table 3-7) is decoded as one U+FFFD. `length` is at least 1 and never exceeds the text.
CodePoint DecodeUtf8(std::string_view text, size_t pos);

void AppendUtf8(std::string& out, char32_t value);

bool IsValidUtf8(std::string_view text);

// The number of bytes at the beginning of `text` that are valid UTF-8.
size_t ValidUtf8Prefix(std::string_view text);

// `text` with each maximal ill-formed subpart replaced by U+FFFD, as in Python's and Rust's lossy
// decoding. The result is valid UTF-8; valid text is returned unchanged.
std::string ReplaceInvalidUtf8(std::string_view text);

// The number of bytes (0 to 3) at the end of `text` that begin a character which later bytes may
// complete. Later bytes never change how the bytes before them are decoded.
size_t IncompleteTail(std::string_view text);

// The number of characters in valid UTF-8.
size_t CountCodePoints(std::string_view text);

}  // namespace baton
