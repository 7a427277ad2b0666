#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/text/tokenizer_spec.h"

namespace baton {

// A stretch of text, in bytes.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

// Finds added tokens in text: leftmost first, the longest of those that start there. Immutable, so
// thread-safe.
class AddedTokenFinder final {
 public:
  // Which special tokens count: those wholly inside one of these disjoint, ascending ranges.
  struct Trust {
    bool all = true;
    std::span<const TextRange> ranges;
  };
  struct Match {
    TextRange range;  // with the white space that lstrip and rstrip swallow
    TokenId id = 0;
  };

  // `id`s are of `tokens`; empty texts are left out.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  // The matches in valid UTF-8 `text`, ascending and disjoint.
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
