#include "common/text/tekken_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <absl/strings/escaping.h>
#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/text/hf_json.h"
#include "common/text/piece_scanner.h"
#include "common/text/ranked_merges.h"

namespace baton {
namespace {

using nlohmann::json;

constexpr int64_t kMaxTokens = int64_t{1} << 22;

// The special tokens of files that do not list them (versions 1 to 7).
constexpr std::string_view kFirstSpecialTokens[] = {"<unk>",
                                                    "<s>",
                                                    "</s>",
                                                    "[INST]",
                                                    "[/INST]",
                                                    "[AVAILABLE_TOOLS]",
                                                    "[/AVAILABLE_TOOLS]",
                                                    "[TOOL_RESULTS]",
                                                    "[/TOOL_RESULTS]",
                                                    "[TOOL_CALLS]",
                                                    "[IMG]",
                                                    "<pad>",
                                                    "[IMG_BREAK]",
                                                    "[IMG_END]",
                                                    "[PREFIX]",
                                                    "[MIDDLE]",
                                                    "[SUFFIX]",
                                                    "[SYSTEM_PROMPT]",
                                                    "[/SYSTEM_PROMPT]",
                                                    "[TOOL_CONTENT]"};

StatusOr<int64_t> ReadCount(const json& config, std::string_view name, int64_t least) {
  const json& member = MemberOf(config, name);
  const bool fits = member.is_number_integer() &&
                    !(member.is_number_unsigned() && member.get<uint64_t>() > kMaxTokens);
  const int64_t count = fits ? member.get<int64_t>() : -1;
  if (count >= least && count <= kMaxTokens) return count;
  return InvalidArgument("tekken.json: config.{} is {}; it must be a number from {} to {}",
                         name,
                         member.is_primitive() ? member.dump() : member.type_name(),
                         least,
                         kMaxTokens);
}

// The text of each special token; nullopt for ids that the file does not name.
StatusOr<std::vector<std::optional<std::string>>> ReadNames(const json& root, int64_t count) {
  std::vector<std::optional<std::string>> names(static_cast<size_t>(count));
  const json& list = MemberOf(root, "special_tokens");
  if (list.is_null()) {
    const size_t named = std::min(names.size(), std::size(kFirstSpecialTokens));
    std::copy_n(std::begin(kFirstSpecialTokens), named, names.begin());
    return names;
  }
  if (!list.is_array()) return InvalidArgument("tekken.json: special_tokens must be a list");
  for (size_t i = 0; i < list.size(); ++i) {
    const json& rank = MemberOf(list[i], "rank");
    const bool fits = rank.is_number_unsigned() && rank.get<uint64_t>() < names.size();
    std::string text = TextMember(list[i], "token_str");
    if (!fits || names[rank.get<size_t>()].has_value() || text.empty()) {
      return InvalidArgument(
          "tekken.json: special_tokens[{}] must have a token_str, and a rank below {} of its own",
          i,
          count);
    }
    names[rank.get<size_t>()] = std::move(text);
  }
  return names;
}

Status ReadSpecialTokens(const json& root, int64_t count, TokenizerSpec& spec) {
  BATON_ASSIGN_OR_RETURN(auto names, ReadNames(root, count));
  for (size_t i = 0; i < names.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    std::string text = names[i].has_value() ? *std::move(names[i]) : fmt::format("<SPECIAL_{}>", i);
    if (text == "<s>") spec.bos = id;
    if (text == "</s>") spec.eos = {id};
    if (text == "<pad>") spec.padding = id;
    spec.added.push_back({.id = id, .text = text, .special = true});
    spec.pieces.push_back({std::move(text), PieceKind::kControl});
  }
  if (spec.bos.has_value()) spec.prefix = {*spec.bos};
  return OkStatus();
}

// Reads the first `count` tokens; the model does not have the rest of the file.
Status ReadVocabulary(const json& root, int64_t count, TokenizerSpec& spec) {
  const json& vocabulary = MemberOf(root, "vocab");
  const size_t listed = vocabulary.is_array() ? vocabulary.size() : 0;
  if (std::cmp_less(listed, count)) {
    return InvalidArgument(
        "tekken.json: vocab has {} tokens; the config says that there are {}", listed, count);
  }
  for (size_t i = 0; std::cmp_less(i, count); ++i) {
    std::string bytes;
    const bool read = absl::Base64Unescape(TextMember(vocabulary[i], "token_bytes"), &bytes);
    if (!read || bytes.empty() || bytes.size() > kMaxRankedTokenBytes) {
      return InvalidArgument("tekken.json: vocab[{}].token_bytes must be 1 to {} bytes in base64",
                             i,
                             kMaxRankedTokenBytes);
    }
    if (MemberOf(vocabulary[i], "rank") != i) {
      return InvalidArgument("tekken.json: vocab[{}] must have rank {}", i, i);
    }
    spec.pieces.push_back({std::move(bytes), PieceKind::kNormal});
  }
  return OkStatus();
}

Status ReadPattern(const json& config, TokenizerSpec& spec) {
  std::string regex = TextMember(config, "pattern");
  if (regex.empty()) return InvalidArgument("tekken.json: config.pattern must be a text");
  if (const auto known = KnownPattern(regex)) {
    spec.splits = {{.kind = SplitStep::Kind::kPattern, .pattern = *known, .regex = ""}};
  } else {
    spec.splits = {{.kind = SplitStep::Kind::kRegex, .regex = std::move(regex)}};
  }
  return OkStatus();
}

}  // namespace

StatusOr<TokenizerSpec> TokenizerSpecFromTekken(std::string_view tekken_json) {
  BATON_ASSIGN_OR_RETURN(const json root, ParseJson("tekken.json", tekken_json));
  const json& config = MemberOf(root, "config");
  BATON_ASSIGN_OR_RETURN(const int64_t special, ReadCount(config, "default_num_special_tokens", 0));
  BATON_ASSIGN_OR_RETURN(const int64_t all, ReadCount(config, "default_vocab_size", special + 1));
  TokenizerSpec spec;
  spec.ignore_merges = true;
  BATON_RETURN_IF_ERROR(ReadPattern(config, spec));
  BATON_RETURN_IF_ERROR(ReadSpecialTokens(root, special, spec));
  BATON_RETURN_IF_ERROR(ReadVocabulary(root, all - special, spec));
  AddRankedMerges(static_cast<size_t>(special), spec);
  return spec;
}

}  // namespace baton
