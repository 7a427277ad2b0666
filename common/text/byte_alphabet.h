#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace baton {

// The printable characters that byte-level BPE vocabularies use for bytes: a byte that is a
// printable Latin-1 character is written as itself, the others as U+0100 upwards (GPT-2,
// encoder.py, bytes_to_unicode).

// The character that stands for `byte`.
char32_t PrintableOfByte(uint8_t byte);

// The bytes that `printable` stands for; nothing when one of its characters stands for no byte.
std::optional<std::string> BytesOfPrintable(std::string_view printable);

}  // namespace baton
