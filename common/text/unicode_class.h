#pragma once

#include <cstdint>

namespace baton {

// The classes of a character in the pre-tokenizer patterns, as bits.
using CharClass = uint8_t;
constexpr CharClass kLetter = 1;      // \p{L}
constexpr CharClass kNumber = 2;      // \p{N}
constexpr CharClass kSpace = 4;       // \s: Unicode White_Space
constexpr CharClass kLineEnd = 8;     // [\r\n]
constexpr CharClass kUpperLike = 16;  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
constexpr CharClass kLowerLike = 32;  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]

namespace internal {
// A two-stage table: the page of each 256 code points, then the class within the page.
struct ClassTable {
  uint8_t page[0x110000 / 256];
  CharClass pages[256][256];
};
const ClassTable& GetClassTable();
}  // namespace internal

// Looks up the class of a code point in constant time, from utf8proc's categories. Immutable, so
// thread-safe. The table is built at the first use.
class UnicodeClasses final {
 public:
  UnicodeClasses() : table_(internal::GetClassTable()) {}
  // The class of `value` <= 0x10FFFF.
  CharClass Of(char32_t value) const { return table_.pages[table_.page[value >> 8]][value & 0xFF]; }
  CharClass OfAscii(uint8_t value) const { return table_.pages[0][value]; }

 private:
  const internal::ClassTable& table_;
};

// Unicode White_Space (PropList.txt).
bool IsUnicodeSpace(char32_t value);

}  // namespace baton
