#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/text/piece_table.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// Turns one pre-tokenised piece of text into tokens by byte-pair merging (Sennrich et al. 2016):
// the pair of lowest rank is joined first, of equal ranks the leftmost. Immutable, so thread-safe.
// Short pieces are merged in place, long pieces with one list of candidates per rank. This takes at
// most n log n time, and linear time for runs of one character, as in hostile texts; and about 40
// bytes per symbol.
class BpeEncoder final {
 public:
  // Reads the alphabet, pieces, merges and flags for unknown characters of `spec`. Tokenizer has
  // checked `spec`, which must outlive the encoder.
  explicit BpeEncoder(const TokenizerSpec& spec);

  using Cancelled = std::function<bool()>;

  // Appends the tokens of `piece`, which is valid UTF-8. Bytes that have no token are left out, as
  // in the reference implementations. `cancelled` may be empty. It is called at intervals during a
  // long piece; when it returns true, Encode stops and the appended tokens are meaningless.
  void Encode(std::string_view piece,
              std::vector<TokenId>& out,
              const Cancelled& cancelled = nullptr) const;

 private:
  struct Target {
    uint32_t rank = UINT32_MAX;
    TokenId result = 0;
  };

  void AppendSymbols(std::string_view piece, std::vector<TokenId>& symbols) const;
  void AppendUnknown(std::string_view character, std::vector<TokenId>& symbols) const;
  Target Find(TokenId left, TokenId right) const;
  void MergeShort(std::vector<TokenId>& symbols) const;
  void MergeLong(std::vector<TokenId>& symbols, const Cancelled& cancelled) const;
  void EncodeByMerging(std::string_view piece,
                       std::vector<TokenId>& out,
                       const Cancelled& cancelled) const;
  void FindWholePieces(const TokenizerSpec& spec);

  BpeAlphabet alphabet_;
  bool byte_fallback_;
  bool fuse_unknown_;
  std::optional<TokenId> unknown_;
  std::array<TokenId, 256> byte_tokens_;
  PieceTable pieces_;        // pieces that can be a symbol before merging
  PieceTable whole_pieces_;  // pieces that merging would turn into exactly one token
  absl::flat_hash_map<uint64_t, Target> merges_;
};

}  // namespace baton
