#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/ids.h"

namespace baton {

// A hash table from a piece's bytes to its token, built once and then only read (thread-safe). The
// pieces' bytes must outlive it.
class PieceTable final {
 public:
  static constexpr TokenId kNone = -1;

  // Room for `capacity` pieces.
  explicit PieceTable(size_t capacity);

  // Keeps the first of equal pieces. At most `capacity` calls.
  void Insert(std::string_view bytes, TokenId id);
  // kNone when there is no such piece.
  TokenId Find(std::string_view bytes) const;

 private:
  struct Slot {
    std::string_view bytes;
    uint32_t hash = 0;
    TokenId id = kNone;
  };

  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace baton
