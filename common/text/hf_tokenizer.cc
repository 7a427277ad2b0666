#include "common/text/hf_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/text/byte_alphabet.h"
#include "common/text/hf_json.h"

namespace baton {

using nlohmann::json;

const json& MemberOf(const json& object, std::string_view name) {
  static const json none;
  if (!object.is_object()) return none;
  const auto it = object.find(std::string(name));
  return it == object.end() ? none : *it;
}

std::string TextMember(const json& object, std::string_view name, std::string_view fallback) {
  const json& member = MemberOf(object, name);
  return member.is_string() ? member.get<std::string>() : std::string(fallback);
}

bool BoolMember(const json& object, std::string_view name, bool fallback) {
  const json& member = MemberOf(object, name);
  return member.is_boolean() ? member.get<bool>() : fallback;
}

std::string TypeOf(const json& component) {
  return component.is_object() ? TextMember(component, "type", "without a type") : "null";
}

namespace {

constexpr int64_t kLargestId = (int64_t{1} << 24) - 1;

using Ids = absl::flat_hash_map<std::string, TokenId>;

StatusOr<TokenId> ReadId(std::string_view what, const json& value) {
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() && value.get<uint64_t>() > kLargestId);
  const int64_t id = fits ? value.get<int64_t>() : -1;
  if (id < 0 || id > kLargestId) {
    return InvalidArgument("tokenizer.json: the id of '{}' is {}; it must be 0 to {}",
                           what,
                           value.is_primitive() ? value.dump() : value.type_name(),
                           kLargestId);
  }
  return static_cast<TokenId>(id);
}

// "<0x0A>" -> one byte; nothing for other text.
std::optional<char> ByteOf(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  if (digit(piece[3]) < 0 || digit(piece[4]) < 0) return std::nullopt;
  return static_cast<char>(digit(piece[3]) * 16 + digit(piece[4]));
}

Piece MakePiece(const std::string& text, const TokenizerSpec& spec) {
  if (spec.byte_fallback) {
    if (const auto byte = ByteOf(text)) return {std::string(1, *byte), PieceKind::kByte};
  }
  if (spec.alphabet == BpeAlphabet::kBytes) {
    if (auto bytes = BytesOfPrintable(text)) return {*std::move(bytes), PieceKind::kNormal};
  }
  return {text, PieceKind::kNormal};
}

void SetPiece(TokenizerSpec& spec, TokenId id, Piece piece) {
  const auto index = static_cast<size_t>(id);
  if (index >= spec.pieces.size()) spec.pieces.resize(index + 1, {"", PieceKind::kUnused});
  spec.pieces[index] = std::move(piece);
}

StatusOr<Ids> ReadVocabulary(const json& model, TokenizerSpec& spec) {
  const json& vocabulary = MemberOf(model, "vocab");
  if (!vocabulary.is_object() || vocabulary.empty()) {
    return InvalidArgument("tokenizer.json: model.vocab must be an object that maps pieces to ids");
  }
  Ids ids;
  ids.reserve(vocabulary.size());
  // Ids may have gaps, but the largest id is bounded, so that a small file cannot demand a huge
  // table.
  const auto most =
      static_cast<TokenId>(std::min<size_t>(kLargestId, 4 * vocabulary.size() + 65536));
  for (const auto& [text, value] : vocabulary.items()) {
    BATON_ASSIGN_OR_RETURN(const TokenId id, ReadId(text, value));
    if (id > most)
      return InvalidArgument(
          "tokenizer.json: '{}' has id {}, too large for a vocabulary of {} pieces",
          text,
          id,
          vocabulary.size());
    SetPiece(spec, id, MakePiece(text, spec));
    ids.emplace(text, id);
  }
  return ids;
}

// A merge is "left right" or ["left", "right"].
StatusOr<std::pair<std::string, std::string>> ReadMerge(const json& merge, size_t index) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
  }
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string::npos) return std::pair(text.substr(0, space), text.substr(space + 1));
  }
  return InvalidArgument("tokenizer.json: model.merges[{}] must be two pieces", index);
}

Status ReadMerges(const json& model, const Ids& ids, TokenizerSpec& spec) {
  const json& merges = MemberOf(model, "merges");
  if (!merges.is_array()) return InvalidArgument("tokenizer.json: model.merges must be a list");
  spec.merges.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    BATON_ASSIGN_OR_RETURN(const auto pair, ReadMerge(merges[i], i));
    const auto left = ids.find(pair.first);
    const auto right = ids.find(pair.second);
    const auto result = ids.find(pair.first + pair.second);
    if (left == ids.end() || right == ids.end() || result == ids.end()) {
      return InvalidArgument(
          "tokenizer.json: model.merges[{}] joins '{}' and '{}', which are not all in the "
          "vocabulary",
          i,
          pair.first,
          pair.second);
    }
    spec.merges.push_back({left->second, right->second, result->second, static_cast<uint32_t>(i)});
  }
  return OkStatus();
}

bool UsesByteLevel(const json& component, const char* parts) {
  if (TypeOf(component) == "ByteLevel") return true;
  for (const json& part : MemberOf(component, parts)) {
    if (TypeOf(part) == "ByteLevel") return true;
  }
  return false;
}

void SetUnknown(TokenId id, TokenizerSpec& spec) {
  spec.unknown = id;
  spec.pieces[static_cast<size_t>(id)].kind = PieceKind::kUnknown;
}

Status ReadBpe(const json& root, const json& model, TokenizerSpec& spec, Ids& ids) {
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!TextMember(model, affix).empty()) {
      return absl::UnimplementedError(fmt::format(
          "tokenizer.json: model.{} is '{}'; it must be empty", affix, TextMember(model, affix)));
    }
  }
  spec.ignore_merges = BoolMember(model, "ignore_merges", false);
  spec.byte_fallback = BoolMember(model, "byte_fallback", false);
  spec.fuse_unknown = BoolMember(model, "fuse_unk", false);
  const bool byte_level = UsesByteLevel(MemberOf(root, "pre_tokenizer"), "pretokenizers") ||
                          UsesByteLevel(MemberOf(root, "decoder"), "decoders");
  spec.alphabet = byte_level ? BpeAlphabet::kBytes : BpeAlphabet::kCharacters;
  BATON_ASSIGN_OR_RETURN(ids, ReadVocabulary(model, spec));
  BATON_RETURN_IF_ERROR(ReadMerges(model, ids, spec));
  const std::string unknown = TextMember(model, "unk_token");
  if (const auto it = ids.find(unknown); it != ids.end()) SetUnknown(it->second, spec);
  return OkStatus();
}

// The vocabulary is a list of [piece, score].
Status ReadUnigram(const json& model, TokenizerSpec& spec, Ids& ids) {
  spec.model = TokenModel::kUnigram;
  spec.alphabet = BpeAlphabet::kCharacters;
  spec.fuse_unknown = true;
  spec.byte_fallback = BoolMember(model, "byte_fallback", false);
  const json& vocabulary = MemberOf(model, "vocab");
  if (!vocabulary.is_array() || vocabulary.empty() || vocabulary.size() > kLargestId) {
    return InvalidArgument("tokenizer.json: model.vocab must be a list of 1 to {} pieces",
                           kLargestId);
  }
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const json& entry = vocabulary[i];
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      return InvalidArgument("tokenizer.json: model.vocab[{}] must be a piece and its score", i);
    }
    auto text = entry[0].get<std::string>();
    spec.pieces.push_back(MakePiece(text, spec));
    spec.scores.push_back(entry[1].get<double>());
    ids.emplace(std::move(text), static_cast<TokenId>(i));
  }
  const json& unknown = MemberOf(model, "unk_id");
  if (unknown.is_null()) return OkStatus();
  BATON_ASSIGN_OR_RETURN(const TokenId id, ReadId("unk_id", unknown));
  if (std::cmp_greater_equal(id, spec.pieces.size())) {
    return InvalidArgument(
        "tokenizer.json: model.unk_id is {}; it must be less than {}", id, spec.pieces.size());
  }
  SetUnknown(id, spec);
  return OkStatus();
}

Status ReadModel(const json& root, TokenizerSpec& spec, Ids& ids) {
  const json& model = MemberOf(root, "model");
  // Old files do not state the type; they are read as BPE, which needs merges.
  const std::string type = TextMember(model, "type", "BPE");
  if (type == "BPE") return ReadBpe(root, model, spec, ids);
  if (type == "Unigram") return ReadUnigram(model, spec, ids);
  return absl::UnimplementedError(fmt::format(
      "tokenizer.json: model of type '{}' is not supported; it must be BPE or Unigram", type));
}

// An entry of `added_tokens` or `added_tokens_decoder`. `most` bounds the id, so that a small file
// cannot demand a huge table.
Status ReadAddedToken(const json& token, const json& id, size_t most, TokenizerSpec& spec) {
  AddedToken added;
  added.text = TextMember(token, "content");
  BATON_ASSIGN_OR_RETURN(added.id, ReadId(added.text, id));
  if (static_cast<size_t>(added.id) > most) {
    return InvalidArgument("tokenizer: '{}' has id {}; at most {} is possible with its vocabulary",
                           added.text,
                           added.id,
                           most);
  }
  added.special = BoolMember(token, "special", false);
  added.lstrip = BoolMember(token, "lstrip", false);
  added.rstrip = BoolMember(token, "rstrip", false);
  added.single_word = BoolMember(token, "single_word", false);
  added.normalized = BoolMember(token, "normalized", !added.special);
  const bool unknown = spec.unknown == added.id;
  SetPiece(spec,
           added.id,
           {added.text,
            unknown         ? PieceKind::kUnknown
            : added.special ? PieceKind::kControl
                            : PieceKind::kUserDefined});
  spec.added.push_back(std::move(added));
  return OkStatus();
}

Status ReadAddedTokens(const json& root, TokenizerSpec& spec, Ids& ids) {
  const size_t most = 2 * spec.pieces.size() + 65536;
  for (const json& token : MemberOf(root, "added_tokens")) {
    BATON_RETURN_IF_ERROR(ReadAddedToken(token, MemberOf(token, "id"), most, spec));
    ids[spec.added.back().text] = spec.added.back().id;
  }
  return OkStatus();
}

// Reads the tokens that TemplateProcessing puts before and after one text.
Status ReadPostProcessor(const json& component, const Ids& ids, TokenizerSpec& spec) {
  const std::string type = TypeOf(component);
  if (type == "Sequence") {
    for (const json& part : MemberOf(component, "processors")) {
      if (TypeOf(part) == "Sequence")
        return InvalidArgument("tokenizer.json: post_processor sequences are nested");
      BATON_RETURN_IF_ERROR(ReadPostProcessor(part, ids, spec));
    }
    return OkStatus();
  }
  if (type == "null" || type == "ByteLevel") return OkStatus();
  if (type != "TemplateProcessing") {
    return absl::UnimplementedError(
        fmt::format("tokenizer.json: post_processor of type '{}' is not supported; supported: "
                    "ByteLevel, Sequence and TemplateProcessing",
                    type));
  }
  bool before = true;
  for (const json& part : MemberOf(component, "single")) {
    if (part.contains("Sequence")) {
      before = false;
      continue;
    }
    const std::string name = TextMember(MemberOf(part, "SpecialToken"), "id");
    const json& special = MemberOf(MemberOf(MemberOf(component, "special_tokens"), name), "ids");
    std::vector<TokenId>& side = before ? spec.prefix : spec.suffix;
    if (special.is_array()) {
      for (const json& id : special) {
        BATON_ASSIGN_OR_RETURN(const TokenId token, ReadId(name, id));
        side.push_back(token);
      }
    } else if (const auto it = ids.find(name); it != ids.end()) {
      side.push_back(it->second);
    } else {
      return InvalidArgument(
          "tokenizer.json: the post_processor's token '{}' is not in the vocabulary", name);
    }
  }
  return OkStatus();
}

// The token that a member of tokenizer_config.json names: by its text, or as an object with
// `content`.
std::optional<TokenId> NamedToken(const json& config, const char* name, const TokenizerSpec& spec) {
  const json& member = MemberOf(config, name);
  const std::string text =
      member.is_object() ? TextMember(member, "content") : TextMember(config, name);
  if (text.empty()) return std::nullopt;
  for (const AddedToken& added : spec.added) {
    if (added.text == text) return added.id;
  }
  const auto piece = std::ranges::find(spec.pieces, text, &Piece::bytes);
  if (piece == spec.pieces.end()) return std::nullopt;
  return static_cast<TokenId>(piece - spec.pieces.begin());
}

}  // namespace

Status ReadAddedTokensDecoder(const json& config, size_t first_id, TokenizerSpec& spec) {
  for (const auto& [key, token] : MemberOf(config, "added_tokens_decoder").items()) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) id = -1;
    BATON_RETURN_IF_ERROR(ReadAddedToken(token, id, spec.pieces.size() + 65536, spec));
    if (std::cmp_less(spec.added.back().id, first_id)) {
      return InvalidArgument("tokenizer_config.json: '{}' has id {}; added tokens begin at {}",
                             spec.added.back().text,
                             spec.added.back().id,
                             first_id);
    }
  }
  return OkStatus();
}

void NameTokens(const json& config, TokenizerSpec& spec) {
  spec.bos = NamedToken(config, "bos_token", spec);
  spec.padding = NamedToken(config, "pad_token", spec);
  if (const auto eos = NamedToken(config, "eos_token", spec)) spec.eos = {*eos};
}

StatusOr<TokenizerSpec> TokenizerSpecFromJson(std::string_view tokenizer_json,
                                              std::string_view tokenizer_config) {
  BATON_ASSIGN_OR_RETURN(const json root, ParseJson("tokenizer.json", tokenizer_json));
  if (!root.is_object()) return InvalidArgument("tokenizer.json is not a JSON object");
  json config;
  if (!tokenizer_config.empty()) {
    BATON_ASSIGN_OR_RETURN(config, ParseJson("tokenizer_config.json", tokenizer_config));
    if (!config.is_object()) return InvalidArgument("tokenizer_config.json is not a JSON object");
  }
  TokenizerSpec spec;
  Ids ids;
  BATON_RETURN_IF_ERROR(ReadModel(root, spec, ids));
  BATON_RETURN_IF_ERROR(ReadAddedTokens(root, spec, ids));
  if (spec.model == TokenModel::kUnigram) spec.scores.resize(spec.pieces.size());
  BATON_RETURN_IF_ERROR(ReadNormalizer(MemberOf(root, "normalizer"), spec));
  BATON_RETURN_IF_ERROR(ReadPreTokenizer(MemberOf(root, "pre_tokenizer"), spec));
  BATON_RETURN_IF_ERROR(ReadDecoder(MemberOf(root, "decoder"), spec));
  BATON_RETURN_IF_ERROR(ReadPostProcessor(MemberOf(root, "post_processor"), ids, spec));
  NameTokens(config, spec);
  if (!spec.bos && !spec.prefix.empty()) spec.bos = spec.prefix.front();
  return spec;
}

}  // namespace baton
