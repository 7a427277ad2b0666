#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/ids.h"

namespace baton {

// A hash table from a piece's bytes to its token. Find is thread-safe once all pieces are inserted.
// The bytes of the pieces must outlive the table.
class PieceTable final {
 public:
  static constexpr TokenId kNone = -1;

  // A table with room for `capacity` pieces.
  explicit PieceTable(size_t capacity);

  // Of equal pieces the first is kept. At most `capacity` calls.
  void Insert(std::string_view bytes, TokenId id);
  // kNone when there is no such piece.
  TokenId Find(std::string_view bytes) const;

 private:
  struct Slot {
    std::string_view bytes;
    uint32_t hash = 0;
    TokenId id = kNone;
  };

  std::vector<Slot> slots_;  // the size is a power of two; at most half of the slots are used
};

}  // namespace baton
