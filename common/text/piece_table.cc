#define XXH_INLINE_ALL
#include "common/text/piece_table.h"

#include <xxhash.h>

#include <bit>

namespace baton {

PieceTable::PieceTable(size_t capacity) : slots_(std::bit_ceil(2 * capacity + 2)) {}

void PieceTable::Insert(std::string_view bytes, TokenId id) {
  const auto hash = static_cast<uint32_t>(XXH3_64bits(bytes.data(), bytes.size()));
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  for (; slots_[at].id != kNone; at = (at + 1) & mask) {
    if (slots_[at].hash == hash && slots_[at].bytes == bytes) return;
  }
  slots_[at] = {bytes, hash, id};
}

TokenId PieceTable::Find(std::string_view bytes) const {
  const auto hash = static_cast<uint32_t>(XXH3_64bits(bytes.data(), bytes.size()));
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask; slots_[at].id != kNone; at = (at + 1) & mask) {
    if (slots_[at].hash == hash && slots_[at].bytes == bytes) return slots_[at].id;
  }
  return kNone;
}

}  // namespace baton
