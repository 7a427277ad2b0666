#include "common/grammar/xgrammar/utf8_tokens.h"

#include <algorithm>

#include "common/chat_format/markers.h"

namespace baton {
namespace {

Utf8State AfterFirst(uint8_t byte) {
  if (byte < 0x80 || byte == static_cast<uint8_t>(kSpecialSign)) return Utf8State::kWhole;
  if (byte < 0xC2 || byte > 0xF4) return Utf8State::kInvalid;
  if (byte < 0xE0) return Utf8State::kOne;
  if (byte == 0xE0) return Utf8State::kAfterE0;
  if (byte == 0xED) return Utf8State::kAfterEd;
  if (byte < 0xF0) return Utf8State::kTwo;
  if (byte == 0xF0) return Utf8State::kAfterF0;
  return byte == 0xF4 ? Utf8State::kAfterF4 : Utf8State::kThree;
}

Utf8State After(Utf8State state, uint8_t byte) {
  const auto within = [&](uint8_t first, uint8_t last, Utf8State next) {
    return byte >= first && byte <= last ? next : Utf8State::kInvalid;
  };
  switch (state) {
    case Utf8State::kWhole:
      return AfterFirst(byte);
    case Utf8State::kOne:
      return within(0x80, 0xBF, Utf8State::kWhole);
    case Utf8State::kTwo:
      return within(0x80, 0xBF, Utf8State::kOne);
    case Utf8State::kThree:
      return within(0x80, 0xBF, Utf8State::kTwo);
    case Utf8State::kAfterE0:
      return within(0xA0, 0xBF, Utf8State::kOne);
    case Utf8State::kAfterEd:
      return within(0x80, 0x9F, Utf8State::kOne);
    case Utf8State::kAfterF0:
      return within(0x90, 0xBF, Utf8State::kTwo);
    case Utf8State::kAfterF4:
      return within(0x80, 0x8F, Utf8State::kTwo);
    default:
      return Utf8State::kInvalid;
  }
}

}  // namespace

Utf8State Utf8After(Utf8State state, std::string_view text) {
  for (const char byte : text) {
    state = After(state, static_cast<uint8_t>(byte));
    if (state == Utf8State::kInvalid) break;
  }
  return state;
}

Utf8Tokens::Utf8Tokens(const std::vector<std::string>& texts) {
  for (size_t state = 0; state < kUtf8States; ++state) {
    masks_[state].resize((texts.size() + 31) / 32);
    for (size_t token = 0; token < texts.size(); ++token) {
      const Utf8State to = Utf8After(static_cast<Utf8State>(state), texts[token]);
      if (to != Utf8State::kInvalid) masks_[state][token / 32] |= uint32_t{1} << token % 32;
    }
  }
}

void Utf8Tokens::Limit(Utf8State state, std::span<uint32_t> mask) const {
  const std::vector<uint32_t>& allowed = masks_[static_cast<size_t>(state)];
  const size_t words = std::min(mask.size(), allowed.size());
  for (size_t i = 0; i < words; ++i) mask[i] &= allowed[i];
}

}  // namespace baton
