#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/text/tokenizer_spec.h"

namespace baton {

// Divides text into the pieces of the highest sum of scores (Viterbi; Kudo 2018, "Subword
// Regularization"), with the rules of SentencePiece 0.2.3: a character that is no piece has the
// lowest score minus 10 and becomes the unknown token, or its bytes; a user-defined piece has a
// score above all others. Immutable, so thread-safe. Takes n · (longest piece) time and about 24
// bytes of memory for each byte of text, in windows of kWindow bytes.
class UnigramEncoder final {
 public:
  // Reads the pieces, scores and flags for unknown characters of `spec`, which Tokenizer has
  // checked.
  explicit UnigramEncoder(const TokenizerSpec& spec);

  using Cancelled = std::function<bool()>;

  // As BpeEncoder::Encode.
  void Encode(std::string_view text,
              std::vector<TokenId>& out,
              const Cancelled& cancelled = nullptr) const;

 private:
  // The best way to a position of the text: its last piece.
  struct Step {
    double score = 0;  // the sum of all pieces on the way
    size_t begin = SIZE_MAX;
    TokenId token = 0;  // kUnknownCharacter
  };
  static constexpr TokenId kUnknownCharacter = -1;
  static constexpr size_t kWindow = size_t{1} << 20;
  // A node of the trie of pieces; node 0 is the root.
  struct Node {
    TokenId token = kUnknownCharacter;  // the piece that ends here
    double score = 0;
  };

  void Insert(std::string_view piece, TokenId token, double score);
  void EncodeWindow(std::string_view text,
                    std::vector<TokenId>& out,
                    const Cancelled& cancelled) const;
  double Sum(double a, double b) const;
  size_t AddPieces(std::string_view text, size_t at, std::vector<Step>& steps) const;
  void Append(std::string_view text,
              const std::vector<Step>& steps,
              std::vector<TokenId>& out) const;
  void AppendUnknown(std::string_view text, bool follows, std::vector<TokenId>& out) const;

  const bool byte_fallback_;
  const bool fuse_unknown_;
  const bool float_sums_;
  const std::optional<TokenId> unknown_;
  std::vector<TokenId> byte_tokens_;  // of each byte, or kUnknownCharacter
  double unknown_score_ = 0;
  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, uint32_t> children_;  // by node << 8 | byte
};

}  // namespace baton
