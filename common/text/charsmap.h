#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace baton {

// The `precompiled_charsmap` of SentencePiece's files and of Hugging Face's normalizer Precompiled:
// texts and what replaces them. Immutable, so thread-safe.
//
// Format: the size of a trie in bytes (32 bits, little-endian); the trie, a double array of 32-bit
// units as darts-clone (https://github.com/s-yata/darts-clone, BSD-2-Clause) writes it; then the
// replacements, each ended by a zero byte, to whose first bytes the values of the trie point.
class Charsmap final {
 public:
  // Error: InvalidArgument when the bytes are not of this format.
  static StatusOr<Charsmap> Parse(std::string_view bytes);

  struct Match {
    size_t length = 0;  // bytes of the text that is replaced
    std::string_view replacement;
  };
  // The longest text of the map that `text` begins with.
  std::optional<Match> Longest(std::string_view text) const;
  // The shortest one.
  std::optional<Match> Shortest(std::string_view text) const;

 private:
  Charsmap() = default;
  // Calls `found(length, value)` for each text of the map that `text` begins with, the shortest
  // first, until it returns false.
  template <class Found>
  void Search(std::string_view text, const Found& found) const;
  std::optional<Match> MatchOf(size_t length, uint32_t value) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace baton
