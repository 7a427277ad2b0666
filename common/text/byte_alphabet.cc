#include "common/text/byte_alphabet.h"

#include <array>

#include "common/text/utf8.h"

namespace baton {
namespace {

constexpr char32_t kFirstStandIn = 0x100;
constexpr size_t kAlphabetEnd = 0x144;  // one past the last stand-in

struct Alphabet {
  std::array<char32_t, 256> printable{};
  std::array<int16_t, kAlphabetEnd> byte{};
};

constexpr Alphabet BuildAlphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte) byte = -1;
  char32_t next = kFirstStandIn;
  for (int b = 0; b < 256; ++b) {
    const bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    alphabet.printable[b] = itself ? static_cast<char32_t>(b) : next++;
    alphabet.byte[alphabet.printable[b]] = static_cast<int16_t>(b);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = BuildAlphabet();

}  // namespace

char32_t PrintableOfByte(uint8_t byte) {
  return kAlphabet.printable[byte];
}

std::optional<std::string> BytesOfPrintable(std::string_view printable) {
  std::string bytes;
  bytes.reserve(printable.size());
  for (size_t pos = 0; pos < printable.size();) {
    const CodePoint c = DecodeUtf8(printable, pos);
    if (c.value >= kAlphabetEnd || kAlphabet.byte[c.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte[c.value]));
    pos += c.length;
  }
  return bytes;
}

}  // namespace baton
