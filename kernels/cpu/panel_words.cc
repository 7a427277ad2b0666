#include "kernels/cpu/panel_words.h"

#include <cstring>

namespace baton::cpu {
namespace {

// Which of four consecutive inputs each byte of a word has; also, which byte has each input.
constexpr int64_t kByteOrder[4] = {0, 2, 1, 3};

void PutWord(uint32_t word, int64_t index, int64_t lane, std::byte* block) {
  std::memcpy(block + (index * kPanel + lane) * 4, &word, sizeof(word));
}

uint32_t WordOf(const std::byte* block, int64_t index, int64_t lane) {
  uint32_t word;
  std::memcpy(&word, block + (index * kPanel + lane) * 4, sizeof(word));
  return word;
}

}  // namespace

void PutNibbles(const int8_t (&values)[kBlock], int64_t lane, std::byte* block) {
  for (int64_t j = 0; j < kBlock / 8; ++j) {
    uint32_t word = 0;
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t k = 8 * j + 2 * i;
      word |= static_cast<uint32_t>(values[k] & 15) << (4 * i);
      word |= static_cast<uint32_t>(values[k + 1] & 15) << (16 + 4 * i);
    }
    PutWord(word, j, lane, block);
  }
}

void PutBytes(const int8_t (&values)[kBlock], int64_t lane, std::byte* block) {
  for (int64_t j = 0; j < kBlock / 4; ++j) {
    uint32_t word = 0;
    for (int64_t i = 0; i < 4; ++i) {
      word |= uint32_t{static_cast<uint8_t>(values[4 * j + kByteOrder[i]])} << (8 * i);
    }
    PutWord(word, j, lane, block);
  }
}

void PutFp4(const int8_t (&values)[kBlock], int64_t lane, std::byte* block) {
  for (int64_t j = 0; j < kBlock / 8; ++j) {
    uint32_t word = 0;
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t k = 8 * j + kByteOrder[i];
      word |= static_cast<uint32_t>(values[k] & 15) << (8 * i);
      word |= static_cast<uint32_t>(values[k + 4] & 15) << (8 * i + 4);
    }
    PutWord(word, j, lane, block);
  }
}

int IntegerOf(PanelKind kind, const std::byte* block, int64_t lane, int64_t k) {
  if (kind == PanelKind::kByte) {
    return static_cast<int8_t>(WordOf(block, k / 4, lane) >> (8 * kByteOrder[k % 4]));
  }
  const uint32_t word = WordOf(block, k / 8, lane);
  if (kind == PanelKind::kNibble) {
    return static_cast<int>(word >> (k % 8 / 2 * 4 + k % 2 * 16) & 15);
  }
  return kTwiceFp4[word >> (kByteOrder[k % 4] * 8 + k % 8 / 4 * 4) & 15];
}

}  // namespace baton::cpu
