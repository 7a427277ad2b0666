#include "common/model/unpack_weights.h"

#include <algorithm>
#include <cstring>

#include "common/model/copy_columns.h"

namespace baton {
namespace {

constexpr std::byte kSignBit{0x80};

uint32_t WordAt(std::span<const std::byte> words, int64_t index) {
  uint32_t word = 0;
  std::memcpy(&word, words.data() + static_cast<size_t>(index) * sizeof(word), sizeof(word));
  return word;
}

void PutNibble(std::span<std::byte> row, int64_t index, uint32_t value) {
  std::byte& byte = row[static_cast<size_t>(index / 2)];
  byte |= static_cast<std::byte>(index % 2 == 0 ? value : value << 4);
}

// Integers of 2 and 3 bits, one by one. Those of 3 bits may lie in two words.
void UnpackBits(std::span<const std::byte> words,
                int64_t outputs,
                int64_t inputs,
                int32_t bits,
                std::span<std::byte> to) {
  std::ranges::fill(to, std::byte{0});
  const auto row_bytes = static_cast<size_t>(inputs / 2);
  const uint32_t mask = (1u << bits) - 1;
  for (int64_t output = 0; output < outputs; ++output) {
    const std::span<std::byte> row = to.subspan(static_cast<size_t>(output) * row_bytes, row_bytes);
    for (int64_t input = 0; input < inputs; ++input) {
      const int64_t bit = input * bits;
      uint64_t pair = WordAt(words, bit / 32 * outputs + output);
      if (bit % 32 + bits > 32) {
        pair |= uint64_t{WordAt(words, (bit / 32 + 1) * outputs + output)} << 32;
      }
      PutNibble(row, input, static_cast<uint32_t>(pair >> (bit % 32)) & mask);
    }
  }
}

}  // namespace

void UnpackGptq(std::span<const std::byte> words,
                int64_t outputs,
                int64_t inputs,
                int32_t bits,
                std::span<std::byte> to) {
  if (bits != 4 && bits != 8) return UnpackBits(words, outputs, inputs, bits, to);
  // A word has consecutive inputs, low bits first, as the rows that are written.
  const auto columns = static_cast<size_t>(outputs);
  CopyColumns<uint32_t>(words, columns, {.count = columns}, to.data());
  if (bits == 4) return;
  for (std::byte& number : to) number ^= kSignBit;
}

void UnpackAwq(std::span<const std::byte> words,
               int64_t outputs,
               int64_t inputs,
               std::span<std::byte> to) {
  constexpr int64_t kWords = 16;    // that share a line of the cache
  constexpr int64_t kInputs = 128;  // whose numbers of an output share one
  const int64_t row_words = outputs / 8;
  const int64_t row_bytes = inputs / 2;
  const auto write = [&](int64_t word, int64_t input) {
    const uint32_t even = WordAt(words, input * row_words + word);
    const uint32_t odd = WordAt(words, (input + 1) * row_words + word);
    for (int64_t column = 0; column < 8; ++column) {
      const auto shift = static_cast<uint32_t>(4 * PlaceOfAwq(column));
      const uint32_t pair = (even >> shift & 15) | (odd >> shift & 15) << 4;
      to[static_cast<size_t>((8 * word + column) * row_bytes + input / 2)] =
          static_cast<std::byte>(pair);
    }
  };
  for (int64_t first_word = 0; first_word < row_words; first_word += kWords) {
    const int64_t last_word = std::min(row_words, first_word + kWords);
    for (int64_t first = 0; first < inputs; first += kInputs) {
      const int64_t last = std::min(inputs, first + kInputs);
      for (int64_t input = first; input < last; input += 2) {
        for (int64_t word = first_word; word < last_word; ++word) write(word, input);
      }
    }
  }
}

int32_t PackedInteger(std::span<const std::byte> words, int64_t index, int32_t bits) {
  const int64_t bit = index * bits;
  const auto at = static_cast<size_t>(bit / 8);
  uint32_t pair = std::to_integer<uint32_t>(words[at]);
  if (bit % 8 + bits > 8) pair |= std::to_integer<uint32_t>(words[at + 1]) << 8;
  return static_cast<int32_t>(pair >> (bit % 8) & ((1u << bits) - 1));
}

int64_t PlaceOfAwq(int64_t column) {
  // Column 8c + [0, 2, 4, 6, 1, 3, 5, 7][k] is integer 8c + k.
  return column / 8 * 8 + (column % 2 == 0 ? column % 8 / 2 : 4 + column % 8 / 2);
}

}  // namespace baton
