#include "common/text/utf8.h"

#include <cstdint>
#include <cstring>

namespace baton {
namespace {

struct LeadByte {
  size_t length = 0;  // 0: no character starts with this byte
  uint8_t second_low = 0x80;
  uint8_t second_high = 0xBF;
};

LeadByte Classify(uint8_t lead) {
  if (lead < 0x80) return {.length = 1};
  if (lead < 0xC2) return {};
  if (lead < 0xE0) return {.length = 2};
  if (lead == 0xE0) return {.length = 3, .second_low = 0xA0};
  if (lead == 0xED) return {.length = 3, .second_high = 0x9F};
  if (lead < 0xF0) return {.length = 3};
  if (lead == 0xF0) return {.length = 4, .second_low = 0x90};
  if (lead < 0xF4) return {.length = 4};
  if (lead == 0xF4) return {.length = 4, .second_high = 0x8F};
  return {};
}

uint8_t ByteAt(std::string_view text, size_t pos) {
  return static_cast<uint8_t>(text[pos]);
}

struct Subpart {
  size_t length = 0;  // bytes of the subpart, at least 1
  bool complete = false;
  bool cut = false;  // well-formed, but the text ends inside the character
};

Subpart MeasureSubpart(std::string_view text, size_t pos) {
  const LeadByte lead = Classify(ByteAt(text, pos));
  if (lead.length == 0) return {.length = 1};
  for (size_t i = 1; i < lead.length; ++i) {
    if (pos + i >= text.size()) return {.length = i, .cut = true};
    const uint8_t byte = ByteAt(text, pos + i);
    const uint8_t low = i == 1 ? lead.second_low : 0x80;
    const uint8_t high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {.length = i};
  }
  return {.length = lead.length, .complete = true};
}

// The end of the ASCII run that starts at `pos`.
size_t SkipAscii(std::string_view text, size_t pos) {
  while (pos + sizeof(uint64_t) <= text.size()) {
    uint64_t word;
    std::memcpy(&word, text.data() + pos, sizeof(word));
    if (word & 0x8080808080808080u) break;
    pos += sizeof(word);
  }
  while (pos < text.size() && ByteAt(text, pos) < 0x80) ++pos;
  return pos;
}

// The end of the valid text that starts at `pos`.
size_t SkipValid(std::string_view text, size_t pos) {
  while (true) {
    pos = SkipAscii(text, pos);
    if (pos >= text.size()) return pos;
    const Subpart part = MeasureSubpart(text, pos);
    if (!part.complete) return pos;
    pos += part.length;
  }
}

}  // namespace

CodePoint DecodeUtf8(std::string_view text, size_t pos) {
  const uint8_t lead = ByteAt(text, pos);
  if (lead < 0x80) return {lead, 1};
  const Subpart part = MeasureSubpart(text, pos);
  if (!part.complete) return {kReplacementCharacter, part.length};
  char32_t value = lead & (0x7F >> part.length);
  for (size_t i = 1; i < part.length; ++i) value = value << 6 | (ByteAt(text, pos + i) & 0x3F);
  return {value, part.length};
}

void AppendUtf8(std::string& out, char32_t value) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | value >> 6);
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3F));
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

bool IsValidUtf8(std::string_view text) {
  return ValidUtf8Prefix(text) == text.size();
}

size_t ValidUtf8Prefix(std::string_view text) {
  return SkipValid(text, 0);
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t pos = 0;
  while (true) {
    const size_t end = SkipValid(text, pos);
    out.append(text, pos, end - pos);
    if (end >= text.size()) return out;
    AppendUtf8(out, kReplacementCharacter);
    pos = end + MeasureSubpart(text, end).length;
  }
}

size_t IncompleteTail(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const size_t pos = text.size() - back;
    if ((ByteAt(text, pos) & 0xC0) == 0x80) continue;
    const Subpart part = MeasureSubpart(text, pos);
    return part.cut && part.length == back ? back : 0;
  }
  return 0;
}

size_t CountCodePoints(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
  return count;
}

}  // namespace baton
