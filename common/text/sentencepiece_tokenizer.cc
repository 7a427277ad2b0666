#include "common/text/sentencepiece_tokenizer.h"

#include <climits>
#include <memory>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/text/gguf_tokenizer.h"
#include "common/text/hf_json.h"
#include "common/text/metaspace.h"
#include "common/text/sentencepiece.pb.h"

namespace baton {
namespace {

using nlohmann::json;
using Model = sentencepiece::Model;
using Trainer = sentencepiece::Trainer;

Status Unsupported(std::string_view field, std::string_view value, std::string_view right) {
  return absl::UnimplementedError(fmt::format(
      "tokenizer.model: {} is {}, which is not supported; it must be {}", field, value, right));
}

// Refuses what would change tokens and is not supported.
Status CheckModel(const Model& model) {
  const Trainer& trainer = model.trainer_spec();
  if (trainer.model_type() != Trainer::UNIGRAM && trainer.model_type() != Trainer::BPE) {
    return Unsupported(
        "trainer_spec.model_type", std::to_string(trainer.model_type()), "1 (unigram) or 2 (BPE)");
  }
  if (trainer.treat_whitespace_as_suffix()) {
    return Unsupported("trainer_spec.treat_whitespace_as_suffix", "true", "false");
  }
  if (!model.normalizer_spec().escape_whitespaces()) {
    return Unsupported("normalizer_spec.escape_whitespaces", "false", "true");
  }
  const std::pair<std::string_view, int32_t> ids[] = {{"unk_id", trainer.unk_id()},
                                                      {"bos_id", trainer.bos_id()},
                                                      {"eos_id", trainer.eos_id()},
                                                      {"pad_id", trainer.pad_id()}};
  for (const auto& [field, id] : ids) {
    if (id < model.pieces_size()) continue;
    return InvalidArgument("tokenizer.model: trainer_spec.{} is {}; it must be less than {}",
                           field,
                           id,
                           model.pieces_size());
  }
  return OkStatus();
}

std::optional<int64_t> IdOf(int32_t id) {
  return id < 0 ? std::nullopt : std::optional<int64_t>(id);
}

// A GGUF file has the same vocabulary, with the same types of tokens, in keys of its own.
GgufTokenizerFields FieldsOf(const Model& model, const json& config) {
  const Trainer& trainer = model.trainer_spec();
  GgufTokenizerFields fields;
  fields.model = "llama";
  for (const Model::Piece& piece : model.pieces()) {
    fields.tokens.push_back(piece.piece());
    fields.scores.push_back(piece.score());
    fields.token_types.push_back(piece.type());
  }
  fields.unknown_token_id = IdOf(trainer.unk_id());
  fields.bos_token_id = IdOf(trainer.bos_id());
  fields.eos_token_id = IdOf(trainer.eos_id());
  fields.padding_token_id = IdOf(trainer.pad_id());
  fields.add_bos_token = BoolMember(config, "add_bos_token", true);
  fields.add_eos_token = BoolMember(config, "add_eos_token", false);
  return fields;
}

Status SetNormalizer(const sentencepiece::Normalizer& normalizer, TokenizerSpec& spec) {
  using Kind = NormalizerStep::Kind;
  spec.normalizer.clear();
  if (!normalizer.precompiled_charsmap().empty()) {
    BATON_ASSIGN_OR_RETURN(Charsmap map, Charsmap::Parse(normalizer.precompiled_charsmap()));
    spec.normalizer.push_back(
        {.kind = Kind::kCharsmap, .charsmap = std::make_shared<const Charsmap>(std::move(map))});
  }
  if (normalizer.remove_extra_whitespaces()) {
    spec.normalizer.push_back({.kind = Kind::kTrimSpaces});
    spec.normalizer.push_back({.kind = Kind::kJoinSpaces, .to = " "});
  }
  spec.normalizer.push_back({.kind = Kind::kReplace, .from = " ", .to = std::string(kMetaspace)});
  spec.prefix_space = normalizer.add_dummy_prefix() ? PrefixSpace::kSection : PrefixSpace::kNone;
  spec.strip_first_space = normalizer.add_dummy_prefix() || normalizer.remove_extra_whitespaces();
  return OkStatus();
}

}  // namespace

StatusOr<TokenizerSpec> TokenizerSpecFromSentencePiece(std::string_view bytes,
                                                       std::string_view tokenizer_config) {
  json config = json::object();
  if (!tokenizer_config.empty()) {
    BATON_ASSIGN_OR_RETURN(config, ParseJson("tokenizer_config.json", tokenizer_config));
  }
  Model model;
  const bool read =
      bytes.size() <= INT_MAX && model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  if (!read || model.pieces().empty()) {
    return InvalidArgument("tokenizer.model: {} bytes that are no model of SentencePiece",
                           bytes.size());
  }
  BATON_RETURN_IF_ERROR(CheckModel(model));
  BATON_ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerSpecFromGguf(FieldsOf(model, config)));
  // User-defined pieces are found in normalised text; those of a unigram model by their scores.
  for (AddedToken& added : spec.added) added.normalized = added.literal = !added.special;
  if (model.trainer_spec().model_type() == Trainer::UNIGRAM) {
    spec.model = TokenModel::kUnigram;
    spec.float_sums = true;  // which decides between the orders of two pieces
    std::erase_if(spec.added, [](const AddedToken& added) { return added.literal; });
    spec.merges.clear();
    for (const Model::Piece& piece : model.pieces()) spec.scores.push_back(piece.score());
  }
  BATON_RETURN_IF_ERROR(SetNormalizer(model.normalizer_spec(), spec));
  spec.byte_fallback = model.trainer_spec().byte_fallback();
  spec.fuse_unknown = !spec.byte_fallback;
  BATON_RETURN_IF_ERROR(ReadAddedTokensDecoder(config, 0, spec));
  if (spec.model == TokenModel::kUnigram) spec.scores.resize(spec.pieces.size());
  NameTokens(config, spec);
  return spec;
}

}  // namespace baton
