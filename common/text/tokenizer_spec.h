#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/text/charsmap.h"

namespace baton {

// All data that determines how a model's text becomes tokens. TokenizerSpecFromGguf
// (gguf_tokenizer.h) and TokenizerSpecFromJson (hf_tokenizer.h) make it; Tokenizer uses it.

enum class TokenModel : uint8_t {
  kBpe,     // joins neighbours by `merges`
  kUnigram  // the pieces of the highest sum of `scores` (Kudo 2018)
};

// How text becomes the initial symbols, which merges then join.
enum class BpeAlphabet : uint8_t {
  kBytes,       // byte-level BPE: one symbol per byte (GPT-2, Llama 3, Qwen, SmolLM)
  kCharacters,  // SentencePiece BPE: one symbol per character, bytes for unknown characters
                // (Llama 2, Mistral)
};

enum class PieceKind : uint8_t { kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct Piece {
  std::string
      bytes;  // raw bytes, not in the printable alphabet; '▁' stays; a kByte piece has one byte
  PieceKind kind = PieceKind::kNormal;
};

// Neighbours `left` and `right` are joined to `result`. Lower ranks are joined first; of equal
// ranks, the leftmost pair.
struct Merge {
  TokenId left = 0;
  TokenId right = 0;
  TokenId result = 0;
  uint32_t rank = 0;
};

// Text that is one token wherever it occurs. It is searched before normalising, or after
// normalising if `normalized`.
struct AddedToken {
  TokenId id = 0;
  std::string text;
  bool special = false;      // found only with parse_special; left out of text with skip_special
  bool lstrip = false;       // removes white space to its left
  bool rstrip = false;       // removes white space to its right
  bool single_word = false;  // found only where no word character is next to it
  bool normalized = false;   // its normalised text is searched in the normalised text
  bool literal = false;      // with `normalized`: its text itself is searched there
};

struct NormalizerStep {
  enum class Kind : uint8_t {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kReplace,
    kPrepend,
    kJoinSpaces,          // two or more spaces become `to`
    kTrimSpaces,          // spaces at the beginning and the end are removed, and '▁' at the end
    kStripLeft,           // white space at the beginning is removed
    kStripRight,          // white space at the end is removed
    kCharsmap,            // as SentencePiece applies `charsmap`
    kCharsmapByGrapheme,  // as Hugging Face's library does
  };
  Kind kind = Kind::kNfc;
  std::string from = {};  // kReplace
  std::string to = {};    // kReplace, kPrepend, kJoinSpaces
  std::shared_ptr<const Charsmap> charsmap = nullptr;
};

// The published split patterns that have a hand-written scanner (piece_scanner.h).
enum class PatternKind : uint8_t { kGpt2, kSmolLm, kLlama3, kQwen2, kTekken };

struct SplitStep {
  enum class Kind : uint8_t {
    kPattern,         // `pattern`, which covers all text
    kRegex,           // each match of `regex` is a piece, and so is the text between matches
    kDigits,          // each \p{N} is a piece
    kDigitRuns,       // each run of \p{N} is a piece
    kBeforeMetaspace  // a piece starts at each '▁'
  };
  Kind kind = Kind::kPattern;
  PatternKind pattern = PatternKind::kGpt2;
  std::string regex;
};

// Where a space is put before text that is not empty.
enum class PrefixSpace : uint8_t {
  kNone,
  kFirst,   // at the start of the input, before text that does not begin with one
  kAlways,  // before each text between added tokens that does not begin with one
  kSection  // a '▁' before each normalised text between added tokens that are searched before that
};

struct TokenizerSpec {
  TokenModel model = TokenModel::kBpe;
  BpeAlphabet alphabet = BpeAlphabet::kBytes;
  std::vector<Piece> pieces;  // index = token id
  std::vector<Merge> merges;
  std::vector<double> scores;  // kUnigram: of each piece, the logarithm of its probability
  bool float_sums = false;     // kUnigram: scores are added up in float32
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizer;
  PrefixSpace prefix_space = PrefixSpace::kNone;
  bool metaspace = false;  // after normalising, spaces become '▁'
  std::vector<SplitStep> splits;
  bool ignore_merges = false;           // a piece in the vocabulary becomes its token unmerged
  bool fuse_unknown = false;            // neighbouring unknown characters become one unknown token
  bool byte_fallback = false;           // an unknown character becomes its kByte pieces
  bool strip_first_space = false;       // decoding drops the first character if it is a space
  std::vector<TokenId> prefix, suffix;  // put before and after the text with add_special
  std::optional<TokenId> bos, unknown, padding;
  std::vector<TokenId> eos;  // tokens that end a generation; the first is the tokenizer's own EOS
};

}  // namespace baton
