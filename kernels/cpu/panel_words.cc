#include "kernels/cpu/panel_words.h"

#include <cstring>

#include "kernels/value_tables.h"

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

void PutIndices(const int8_t (&values)[kBlock], int64_t lane, std::byte* block) {
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

// Integers of a pair of inputs, in both halves of a word.
uint32_t PairOf(const int8_t* values, int64_t pair) {
  return static_cast<uint32_t>(values[2 * pair]) | static_cast<uint32_t>(values[2 * pair + 1])
                                                       << 16;
}

// Where the integers of three pairs begin in the halves of a word of kFive.
constexpr int kPlacesOfFive[3] = {0, 6, 11};
constexpr int kRemainderOfFive = 5;

void PutFive(const int8_t (&values)[kBlock], int64_t lane, std::byte* block) {
  const uint32_t last = PairOf(values, 15);
  for (int64_t j = 0; j < 5; ++j) {
    uint32_t word = (last >> j & 0x00010001) << kRemainderOfFive;
    for (int64_t i = 0; i < 3; ++i) word |= PairOf(values, 3 * j + i) << kPlacesOfFive[i];
    PutWord(word, j, lane, block);
  }
}

uint32_t FiveAt(const std::byte* block, int64_t lane, int64_t pair) {
  if (pair < 15) return WordOf(block, pair / 3, lane) >> kPlacesOfFive[pair % 3] & 0x001f001f;
  uint32_t integers = 0;
  for (int64_t j = 0; j < 5; ++j) {
    integers |= (WordOf(block, j, lane) >> kRemainderOfFive & 0x00010001) << j;
  }
  return integers;
}

void PutSix(const int8_t (&values)[kBlock], int64_t lane, std::byte* block) {
  for (int64_t half = 0; half < 2; ++half) {
    const int8_t* const from = values + half * 16;
    const uint32_t sixth = PairOf(from, 6);
    const uint32_t seventh = PairOf(from, 7);
    uint32_t words[3] = {(sixth & 0x000f000f) << 6,
                         (seventh & 0x000f000f) << 6,
                         (sixth & 0x00300030) << 2 | (seventh & 0x00300030) << 4};
    for (int64_t j = 0; j < 3; ++j) {
      words[j] |= PairOf(from, 2 * j) | PairOf(from, 2 * j + 1) << 10;
      PutWord(words[j], 3 * half + j, lane, block);
    }
  }
}

uint32_t SixAt(const std::byte* block, int64_t lane, int64_t pair) {
  const int64_t first = pair / 8 * 3;
  const int64_t i = pair % 8;
  if (i < 6) return WordOf(block, first + i / 2, lane) >> (i % 2 * 10) & 0x003f003f;
  const uint32_t low = WordOf(block, first + i - 6, lane) >> 6 & 0x000f000f;
  return low | (WordOf(block, first + 2, lane) >> (2 * i - 10) & 0x00300030);
}

}  // namespace

void PutValues(PanelKind kind, const int8_t (&values)[kBlock], int64_t lane, std::byte* block) {
  switch (kind) {
    case PanelKind::kByte:
      return PutBytes(values, lane, block);
    case PanelKind::kFp4:
    case PanelKind::kIQ4:
      return PutIndices(values, lane, block);
    case PanelKind::kFive:
      return PutFive(values, lane, block);
    case PanelKind::kSix:
      return PutSix(values, lane, block);
    default:
      return PutNibbles(values, lane, block);
  }
}

int IntegerOf(PanelKind kind, const std::byte* block, int64_t lane, int64_t k) {
  if (kind == PanelKind::kByte) {
    return static_cast<int8_t>(WordOf(block, k / 4, lane) >> (8 * kByteOrder[k % 4]));
  }
  if (kind == PanelKind::kFive || kind == PanelKind::kSix) {
    const uint32_t both =
        kind == PanelKind::kFive ? FiveAt(block, lane, k / 2) : SixAt(block, lane, k / 2);
    return static_cast<int>(both >> (k % 2 * 16) & 63);
  }
  const uint32_t word = WordOf(block, k / 8, lane);
  if (kind == PanelKind::kFp4 || kind == PanelKind::kIQ4) {
    const uint32_t index = word >> (kByteOrder[k % 4] * 8 + k % 8 / 4 * 4) & 15;
    return kind == PanelKind::kFp4 ? kTwiceFp4[index] : kIQ4Values[index];
  }
  return static_cast<int>(word >> (k % 8 / 2 * 4 + k % 2 * 16) & 15);
}

}  // namespace baton::cpu
