#include "common/text/charsmap.h"

#include <bit>
#include <cstring>

namespace baton {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

// The fields of a unit of a double array. A unit whose parent has a leaf has only a value.
constexpr bool HasLeaf(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
constexpr uint32_t ValueOf(uint32_t unit) {
  return unit & 0x7fffffff;
}
constexpr uint32_t LabelOf(uint32_t unit) {
  return unit & 0x800000ff;
}
constexpr uint32_t OffsetOf(uint32_t unit) {
  return unit >> 10 << ((unit & 0x200) >> 6);
}

}  // namespace

StatusOr<Charsmap> Charsmap::Parse(std::string_view bytes) {
  uint32_t trie_bytes = 0;
  if (bytes.size() >= sizeof(trie_bytes)) {
    std::memcpy(&trie_bytes, bytes.data(), sizeof(trie_bytes));
    bytes.remove_prefix(sizeof(trie_bytes));
  }
  if (trie_bytes == 0 || trie_bytes % sizeof(uint32_t) != 0 || trie_bytes >= bytes.size() ||
      bytes.back() != '\0') {
    return InvalidArgument(
        "precompiled_charsmap: a trie of {} bytes in {} bytes; it must be whole units of 4 bytes, "
        "with replacements behind it that end with a zero byte",
        trie_bytes,
        bytes.size());
  }
  Charsmap map;
  map.units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(map.units_.data(), bytes.data(), trie_bytes);
  map.replacements_ = bytes.substr(trie_bytes);
  return map;
}

template <class Found>
void Charsmap::Search(std::string_view text, const Found& found) const {
  uint32_t at = OffsetOf(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    at ^= byte;
    if (at >= units_.size() || LabelOf(units_[at]) != byte) return;
    const bool leaf = HasLeaf(units_[at]);
    at ^= OffsetOf(units_[at]);
    if (at >= units_.size()) return;
    if (leaf && !found(i + 1, ValueOf(units_[at]))) return;
  }
}

std::optional<Charsmap::Match> Charsmap::MatchOf(size_t length, uint32_t value) const {
  if (value >= replacements_.size()) return std::nullopt;
  return Match{length, std::string_view(replacements_.c_str() + value)};
}

std::optional<Charsmap::Match> Charsmap::Longest(std::string_view text) const {
  std::optional<Match> longest;
  Search(text, [&](size_t length, uint32_t value) {
    longest = MatchOf(length, value);
    return true;
  });
  return longest;
}

std::optional<Charsmap::Match> Charsmap::Shortest(std::string_view text) const {
  std::optional<Match> shortest;
  Search(text, [&](size_t length, uint32_t value) {
    shortest = MatchOf(length, value);
    return false;
  });
  return shortest;
}

}  // namespace baton
