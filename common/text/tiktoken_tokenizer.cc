#include "common/text/tiktoken_tokenizer.h"

#include <charconv>
#include <string>
#include <utility>

#include <absl/strings/escaping.h>
#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/text/gguf_patterns.h"
#include "common/text/hf_json.h"
#include "common/text/ranked_merges.h"

namespace baton {
namespace {

using nlohmann::json;

constexpr size_t kMaxTokens = size_t{1} << 22;

// Ids behind the tokens of the file that TikTokenTokenizer keeps for special tokens.
constexpr size_t kReservedTokens = 256;

Status BadLine(size_t line, std::string_view problem) {
  return InvalidArgument("tiktoken.model: line {} {}", line + 1, problem);
}

// The bytes of a token, of a line "base64 rank" that must have this rank.
StatusOr<std::string> ReadLine(std::string_view line, size_t rank) {
  const size_t space = line.find(' ');
  std::string bytes;
  if (space == std::string_view::npos || !absl::Base64Unescape({line.data(), space}, &bytes) ||
      bytes.empty()) {
    return BadLine(rank, "must be a token in base64, a space and a rank");
  }
  if (bytes.size() > kMaxRankedTokenBytes) {
    return BadLine(rank, fmt::format("has a token of more than {} bytes", kMaxRankedTokenBytes));
  }
  const std::string_view number = line.substr(space + 1);
  size_t value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size() || value != rank) {
    return BadLine(rank, fmt::format("has rank '{}'; it must be {}", number, rank));
  }
  return bytes;
}

Status ReadPieces(std::string_view ranks, TokenizerSpec& spec) {
  while (!ranks.empty()) {
    const size_t end = std::min(ranks.find('\n'), ranks.size());
    std::string_view line = ranks.substr(0, end);
    ranks.remove_prefix(std::min(end + 1, ranks.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (spec.pieces.size() == kMaxTokens) {
      return InvalidArgument("tiktoken.model: more than {} tokens", kMaxTokens);
    }
    BATON_ASSIGN_OR_RETURN(std::string bytes, ReadLine(line, spec.pieces.size()));
    spec.pieces.push_back({std::move(bytes), PieceKind::kNormal});
  }
  if (spec.pieces.empty()) return InvalidArgument("tiktoken.model: no tokens");
  return OkStatus();
}

// Special tokens have the ids behind the others. Those that the config does not name are reserved.
Status ReadSpecialTokens(const json& config, TokenizerSpec& spec) {
  const size_t first = spec.pieces.size();
  for (size_t id = first; id < first + kReservedTokens; ++id) {
    spec.pieces.push_back({fmt::format("<|reserved_token_{}|>", id), PieceKind::kControl});
  }
  BATON_RETURN_IF_ERROR(ReadAddedTokensDecoder(config, first, spec));
  for (size_t id = first; id < first + kReservedTokens; ++id) {
    const Piece& piece = spec.pieces[id];
    if (piece.bytes != fmt::format("<|reserved_token_{}|>", id)) continue;
    spec.added.push_back({.id = static_cast<TokenId>(id), .text = piece.bytes, .special = true});
  }
  return OkStatus();
}

}  // namespace

StatusOr<TokenizerSpec> TokenizerSpecFromTiktoken(std::string_view ranks,
                                                  std::string_view tokenizer_config) {
  json config;
  if (!tokenizer_config.empty()) {
    BATON_ASSIGN_OR_RETURN(config, ParseJson("tokenizer_config.json", tokenizer_config));
  }
  const std::string type = TextMember(config, "tokenizer_class");
  if (type != "TikTokenTokenizer") {
    return absl::UnimplementedError(
        fmt::format("tokenizer_config.json: a tiktoken.model of tokenizer_class '{}' is not "
                    "supported; it must be TikTokenTokenizer",
                    type));
  }
  TokenizerSpec spec;
  BATON_ASSIGN_OR_RETURN(GgufPattern pattern, GgufPatternOf("kimi-k2"));
  spec.splits = std::move(pattern.splits);
  spec.ignore_merges = true;
  BATON_RETURN_IF_ERROR(ReadPieces(ranks, spec));
  AddRankedMerges(0, spec);
  BATON_RETURN_IF_ERROR(ReadSpecialTokens(config, spec));
  NameTokens(config, spec);
  return spec;
}

}  // namespace baton
