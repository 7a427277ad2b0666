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
// the pair of lowest rank is joined first, ties from the left. Immutable, so thread-safe. Short
// pieces are merged in place, long ones with a list for each rank: n log n time at most, linear for
// the runs of one character that hostile texts are made of; about 40 bytes a symbol.
class BpeEncoder final {
 public:
  // Reads alphabet, pieces, merges and the flags for unknown characters. `spec` is checked by
  // Tokenizer and must outlive the encoder.
  explicit BpeEncoder(const TokenizerSpec& spec);

  using Cancelled = std::function<bool()>;

  // Appends the tokens of valid UTF-8 `piece`. Bytes that have no token are left out, as the
  // reference implementations do. `cancelled` may be empty; once it gives true, which a long piece
  // asks now and then, the tokens are of no use.
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
  PieceTable pieces_;        // symbols may start as these
  PieceTable whole_pieces_;  // text that merging would turn into exactly this token
  absl::flat_hash_map<uint64_t, Target> merges_;
};

}  // namespace baton
