#include "common/text/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "common/text/byte_alphabet.h"
#include "common/text/gguf_patterns.h"
#include "common/text/metaspace.h"
#include "common/text/piece_table.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

StatusOr<PieceKind> KindOf(const GgufTokenizerFields& fields, size_t index) {
  if (fields.token_types.empty()) return PieceKind::kNormal;
  switch (fields.token_types[index]) {
    case 0:  // "undefined": written by some converters for unused rows
    case 5:
      return PieceKind::kUnused;
    case 1:
      return PieceKind::kNormal;
    case 2:
      return PieceKind::kUnknown;
    case 3:
      return PieceKind::kControl;
    case 4:
      return PieceKind::kUserDefined;
    case 6:
      return PieceKind::kByte;
    default:
      return InvalidArgument("tokenizer.ggml.token_type[{}] is {}; it must be 0 to 6",
                             index,
                             fields.token_types[index]);
  }
}

// "<0x0A>" -> 10.
std::optional<uint8_t> ParseByteName(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : name.substr(3, 2)) {
    const std::string_view digits = "0123456789ABCDEF";
    const size_t digit = digits.find(c >= 'a' && c <= 'f' ? static_cast<char>(c - 32) : c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = value * 16 + static_cast<int>(digit);
  }
  return static_cast<uint8_t>(value);
}

StatusOr<Piece> ReadPiece(const GgufTokenizerFields& fields, size_t index, bool printable) {
  Piece piece;
  BATON_ASSIGN_OR_RETURN(piece.kind, KindOf(fields, index));
  piece.bytes = fields.tokens[index];
  if (piece.kind == PieceKind::kByte) {
    const auto byte = ParseByteName(piece.bytes);
    if (!byte) {
      return InvalidArgument(
          "tokenizer.ggml.tokens[{}] is a byte named '{}'; it must be <0x00> to <0xFF>",
          index,
          piece.bytes);
    }
    piece.bytes.assign(1, static_cast<char>(*byte));
  } else if (printable && piece.kind == PieceKind::kNormal) {
    if (auto bytes = BytesOfPrintable(piece.bytes)) piece.bytes = *std::move(bytes);
  }
  return piece;
}

void ReadAdded(TokenizerSpec& spec) {
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const Piece& piece = spec.pieces[i];
    const bool special = piece.kind == PieceKind::kControl || piece.kind == PieceKind::kUnknown;
    if (!special && piece.kind != PieceKind::kUserDefined) continue;
    spec.added.push_back({.id = static_cast<TokenId>(i), .text = piece.bytes, .special = special});
  }
}

PieceTable TableOf(const std::vector<std::string>& tokens) {
  PieceTable table(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) table.Insert(tokens[i], static_cast<TokenId>(i));
  return table;
}

Status ReadMerges(const GgufTokenizerFields& fields, TokenizerSpec& spec) {
  const PieceTable table = TableOf(fields.tokens);
  for (size_t i = 0; i < fields.merges.size(); ++i) {
    const std::string_view merge = fields.merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 >= merge.size()) {
      return InvalidArgument(
          "tokenizer.ggml.merges[{}] is '{}'; it must be two pieces with a space between",
          i,
          merge);
    }
    const TokenId left = table.Find(merge.substr(0, space));
    const TokenId right = table.Find(merge.substr(space + 1));
    const TokenId result =
        table.Find(std::string(merge.substr(0, space)).append(merge.substr(space + 1)));
    // A merge can never happen when a part of the merge or its result is not a token.
    if (left < 0 || right < 0 || result < 0) continue;
    spec.merges.push_back({left, right, result, static_cast<uint32_t>(i)});
  }
  return OkStatus();
}

// SentencePiece files have scores instead of merges: two neighbours may be joined when their text
// together is a piece, the piece of the highest score first.
Status MergesFromScores(const GgufTokenizerFields& fields, TokenizerSpec& spec) {
  if (fields.scores.size() != fields.tokens.size()) {
    return InvalidArgument(
        "tokenizer.ggml.scores has {} values; it must have one for each of {} tokens",
        fields.scores.size(),
        fields.tokens.size());
  }
  std::vector<float> order = fields.scores;
  if (std::any_of(order.begin(), order.end(), [](float score) { return score != score; })) {
    return InvalidArgument("tokenizer.ggml.scores holds a value that is not a number");
  }
  std::sort(order.begin(), order.end(), std::greater<>());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  PieceTable table(spec.pieces.size());
  const auto mergeable = [&](size_t i) {
    const PieceKind kind = spec.pieces[i].kind;
    return kind == PieceKind::kNormal || kind == PieceKind::kUserDefined ||
           kind == PieceKind::kUnused;
  };
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    if (mergeable(i)) table.Insert(spec.pieces[i].bytes, static_cast<TokenId>(i));
  }
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const std::string_view bytes = spec.pieces[i].bytes;
    constexpr size_t kLongestMergedPiece = 4096;  // bytes; bounds the number of cuts to try
    if (!mergeable(i) || bytes.size() > kLongestMergedPiece || !IsValidUtf8(bytes)) continue;
    const auto place =
        std::lower_bound(order.begin(), order.end(), fields.scores[i], std::greater<>());
    const auto rank = static_cast<uint32_t>(place - order.begin());
    for (size_t cut = 0; cut < bytes.size();) {
      cut += DecodeUtf8(bytes, cut).length;
      if (cut == bytes.size()) break;
      const TokenId left = table.Find(bytes.substr(0, cut));
      const TokenId right = left < 0 ? left : table.Find(bytes.substr(cut));
      if (right >= 0) spec.merges.push_back({left, right, static_cast<TokenId>(i), rank});
    }
  }
  return OkStatus();
}

StatusOr<std::optional<TokenId>> ReadId(std::string_view key,
                                        std::optional<int64_t> value,
                                        size_t vocabulary) {
  if (!value) return std::optional<TokenId>();
  if (*value < 0 || static_cast<uint64_t>(*value) >= vocabulary) {
    return InvalidArgument(
        "tokenizer.ggml.{} is {}; it must be 0 to {}", key, *value, vocabulary - 1);
  }
  return std::optional<TokenId>(static_cast<TokenId>(*value));
}

// `add_bos` counts where the file does not say whether texts begin with the token.
Status ReadSpecialIds(const GgufTokenizerFields& fields, bool add_bos, TokenizerSpec& spec) {
  const size_t count = fields.tokens.size();
  BATON_ASSIGN_OR_RETURN(spec.bos, ReadId("bos_token_id", fields.bos_token_id, count));
  BATON_ASSIGN_OR_RETURN(const auto unknown,
                         ReadId("unknown_token_id", fields.unknown_token_id, count));
  // Byte-level files name an unknown token, too, but there bytes without a token are left out.
  if (spec.alphabet == BpeAlphabet::kCharacters) spec.unknown = unknown;
  BATON_ASSIGN_OR_RETURN(spec.padding, ReadId("padding_token_id", fields.padding_token_id, count));
  const std::pair<std::string_view, std::optional<int64_t>> ends[] = {
      {"eos_token_id", fields.eos_token_id},
      {"eot_token_id", fields.eot_token_id},
      {"eom_token_id", fields.eom_token_id}};
  for (const auto& [key, value] : ends) {
    BATON_ASSIGN_OR_RETURN(const auto id, ReadId(key, value, count));
    if (id && std::find(spec.eos.begin(), spec.eos.end(), *id) == spec.eos.end()) {
      spec.eos.push_back(*id);
    }
  }
  if (fields.add_bos_token.value_or(add_bos) && spec.bos) {
    spec.prefix.push_back(*spec.bos);
  }
  if (fields.add_eos_token.value_or(false) && !spec.eos.empty()) {
    spec.suffix.push_back(spec.eos.front());
  }
  return OkStatus();
}

}  // namespace

StatusOr<TokenizerSpec> TokenizerSpecFromGguf(const GgufTokenizerFields& fields) {
  TokenizerSpec spec;
  if (fields.model != "gpt2" && fields.model != "llama") {
    return absl::UnimplementedError(
        fmt::format("tokenizer.ggml.model is '{}'; it must be gpt2 (byte-level BPE) or llama "
                    "(SentencePiece BPE)",
                    fields.model));
  }
  const bool bytes = fields.model == "gpt2";
  spec.alphabet = bytes ? BpeAlphabet::kBytes : BpeAlphabet::kCharacters;
  if (!fields.token_types.empty() && fields.token_types.size() != fields.tokens.size()) {
    return InvalidArgument(
        "tokenizer.ggml.token_type has {} values; it must have one for each of {} tokens",
        fields.token_types.size(),
        fields.tokens.size());
  }
  spec.pieces.reserve(fields.tokens.size());
  for (size_t i = 0; i < fields.tokens.size(); ++i) {
    BATON_ASSIGN_OR_RETURN(Piece piece, ReadPiece(fields, i, bytes));
    spec.pieces.push_back(std::move(piece));
  }
  ReadAdded(spec);
  if (bytes) {
    BATON_ASSIGN_OR_RETURN(GgufPattern pattern, GgufPatternOf(fields.pre));
    spec.splits = std::move(pattern.splits);
    spec.ignore_merges = pattern.ignore_merges;
    BATON_RETURN_IF_ERROR(ReadSpecialIds(fields, pattern.add_bos, spec));
    BATON_RETURN_IF_ERROR(ReadMerges(fields, spec));
    return spec;
  }
  BATON_RETURN_IF_ERROR(ReadSpecialIds(fields, /*add_bos=*/true, spec));
  BATON_RETURN_IF_ERROR(MergesFromScores(fields, spec));
  spec.byte_fallback = true;
  const bool add_space = fields.add_space_prefix.value_or(true);
  if (add_space) {
    spec.normalizer.push_back(
        {.kind = NormalizerStep::Kind::kPrepend, .from = "", .to = std::string(kMetaspace)});
  }
  spec.normalizer.push_back(
      {.kind = NormalizerStep::Kind::kReplace, .from = " ", .to = std::string(kMetaspace)});
  spec.strip_first_space = add_space;
  return spec;
}

}  // namespace baton
