#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"

namespace baton {

// Everything that decides how a model's text becomes tokens, as plain data. Made by
// TokenizerSpecFromGguf (gguf_tokenizer.h) or TokenizerSpecFromJson (hf_tokenizer.h), used by
// Tokenizer.

// How text becomes the first symbols that merges then join.
enum class BpeAlphabet : uint8_t {
  kBytes,       // byte-level BPE: one symbol a byte (GPT-2, Llama 3, Qwen, SmolLM)
  kCharacters,  // SentencePiece BPE: one symbol a character, bytes for unknown ones (Llama 2,
                // Mistral)
};

enum class PieceKind : uint8_t { kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct Piece {
  std::string
      bytes;  // raw: no printable alphabet; '▁' stays as it is; a kByte piece is its one byte
  PieceKind kind = PieceKind::kNormal;
};

// Joining neighbours `left` and `right` gives `result`. Lower ranks go first, ties from the left.
struct Merge {
  TokenId left = 0;
  TokenId right = 0;
  TokenId result = 0;
  uint32_t rank = 0;
};

// Text that is one token wherever it stands, found before normalising (or after: `normalized`).
struct AddedToken {
  TokenId id = 0;
  std::string text;
  bool special = false;      // found only with parse_special; left out of text with skip_special
  bool lstrip = false;       // swallows white space to its left
  bool rstrip = false;       // and to its right
  bool single_word = false;  // only where no word character touches it
  bool normalized = false;   // looked for in the normalised text, its own text normalised, too
};

struct NormalizerStep {
  enum class Kind : uint8_t { kNfc, kNfd, kNfkc, kNfkd, kReplace, kPrepend };
  Kind kind = Kind::kNfc;
  std::string from;  // kReplace
  std::string to;    // kReplace, kPrepend
};

// The published split patterns that have a hand-written scanner (piece_scanner.h).
enum class PatternKind : uint8_t { kGpt2, kSmolLm, kLlama3, kQwen2, kTekken };

struct SplitStep {
  enum class Kind : uint8_t {
    kPattern,         // `pattern`; covers all text
    kRegex,           // matches of `regex` and what lies between them are pieces
    kDigits,          // each \p{N} is a piece
    kDigitRuns,       // each run of \p{N} is a piece
    kBeforeMetaspace  // a piece starts at each '▁'
  };
  Kind kind = Kind::kPattern;
  PatternKind pattern = PatternKind::kGpt2;
  std::string regex;
};

// Whether a leading space is put before text that has none.
enum class PrefixSpace : uint8_t {
  kNone,
  kFirst,
  kAlways
};  // kFirst: at the start of the input only

struct TokenizerSpec {
  BpeAlphabet alphabet = BpeAlphabet::kBytes;
  std::vector<Piece> pieces;  // index = token id
  std::vector<Merge> merges;
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizer;
  PrefixSpace prefix_space = PrefixSpace::kNone;
  bool metaspace = false;  // after normalising, spaces become '▁'
  std::vector<SplitStep> splits;
  bool ignore_merges = false;           // a split piece that is in the vocabulary is that token
  bool fuse_unknown = false;            // neighbouring unknown characters become one unknown token
  bool byte_fallback = false;           // an unknown character becomes its kByte pieces
  bool strip_first_space = false;       // decoding drops the first character if it is a space
  std::vector<TokenId> prefix, suffix;  // put around the text with add_special
  std::optional<TokenId> bos, unknown, padding;
  std::vector<TokenId> eos;  // tokens that end a generation; the first is the tokenizer's own EOS
};

}  // namespace baton
