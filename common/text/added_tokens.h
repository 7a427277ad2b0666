#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/text/tokenizer_spec.h"

namespace baton {

// A range of text, as byte offsets.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

// Finds added tokens in text: the leftmost first, and of those that start at the same place the
// longest. Immutable, so thread-safe.
class AddedTokenFinder final {
 public:
  // Where special tokens are recognised: everywhere if `all`, else only wholly inside one of the
  // ranges, which are disjoint and ascending.
  struct Trust {
    bool all = true;
    std::span<const TextRange> ranges;
  };
  struct Match {
    TextRange range;  // includes the white space that lstrip and rstrip remove
    TokenId id = 0;
  };

  // Tokens with empty text are ignored.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  // The matches in `text`, which is valid UTF-8; ascending and disjoint.
  std::vector<Match> Find(std::string_view text, Trust trust) const;

 private:
  // The index of the longest token that starts at `pos`, or -1.
  int Longest(std::string_view text, size_t pos) const;
  static bool StandsAlone(std::string_view text, TextRange range);

  std::vector<AddedToken> tokens_;
  absl::flat_hash_map<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node
  std::vector<int> token_at_;                      // node -> index in tokens_, or -1
  bool starts_[256] = {};
};

}  // namespace baton
