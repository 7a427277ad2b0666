#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/text/piece_table.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// Turns one pre-tokenised piece of text into tokens by byte-pair merging (Sennrich et al. 2016):
// the pair of lowest rank is joined first, ties from the left. Immutable, so thread-safe. Short
// pieces are merged in place, long ones with a heap: n log n time, 40 bytes a symbol.
class BpeEncoder final {
 public:
  // Reads alphabet, pieces, merges and the flags for unknown characters. `spec` is checked by
  // Tokenizer and must outlive the encoder.
  explicit BpeEncoder(const TokenizerSpec& spec);

  // Appends the tokens of valid UTF-8 `piece`. Bytes that have no token are left out, as the
  // reference implementations do.
  void Encode(std::string_view piece, std::vector<TokenId>& out) const;

 private:
  struct Target {
    uint32_t rank = UINT32_MAX;
    TokenId result = 0;
  };

  void AppendSymbols(std::string_view piece, std::vector<TokenId>& symbols) const;
  void AppendUnknown(std::string_view character, std::vector<TokenId>& symbols) const;
  Target Find(TokenId left, TokenId right) const;
  void MergeShort(std::vector<TokenId>& symbols) const;
  void MergeLong(std::vector<TokenId>& symbols) const;
  void EncodeByMerging(std::string_view piece, std::vector<TokenId>& out) const;
  void FindWholePieces(const TokenizerSpec& spec);

  BpeAlphabet alphabet_;
  bool byte_fallback_;
  bool fuse_unknown_;
  std::optional<TokenId> unknown_;
  std::array<TokenId, 256> byte_tokens_;
  PieceTable pieces_;        // symbols may start as these
  PieceTable whole_pieces_;  // text that merging would turn into exactly this token
  absl::flat_hash_map<uint64_t, Target> merges_;
};

}  // namespace baton
