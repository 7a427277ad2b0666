#include "common/model/tokenizer_source.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/model/config_fields.h"
#include "common/model/gguf_config.h"
#include "common/model/gguf_file.h"
#include "common/model/hf_config.h"
#include "common/model/open_model.h"
#include "common/text/gguf_tokenizer.h"
#include "common/text/hf_tokenizer.h"
#include "common/text/sentencepiece_tokenizer.h"
#include "common/text/tekken_tokenizer.h"
#include "common/text/tiktoken_tokenizer.h"

namespace baton {
namespace {

constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;
constexpr size_t kMaxTemplateBytes = size_t{4} << 20;

// Stores the values of one GGUF array key in `to`. No effect when the key is absent.
template <class To, class From>
Status ReadList(StatusOr<std::vector<From>> found, std::vector<To>& to) {
  if (found.status().code() == StatusCode::kNotFound) return OkStatus();
  BATON_RETURN_IF_ERROR(found.status());
  to.assign(found->begin(), found->end());
  return OkStatus();
}

StatusOr<GgufTokenizerFields> ReadFields(const GgufFile& gguf) {
  GgufTokenizerFields fields;
  GgufFields keys(gguf, "tokenizer.ggml.");
  fields.model = keys.TextOr("model", "");
  fields.pre = keys.TextOr("pre", "");
  const std::pair<std::string_view, std::optional<int64_t>*> ids[] = {
      {"bos_token_id", &fields.bos_token_id},
      {"eos_token_id", &fields.eos_token_id},
      {"eot_token_id", &fields.eot_token_id},
      {"eom_token_id", &fields.eom_token_id},
      {"unknown_token_id", &fields.unknown_token_id},
      {"padding_token_id", &fields.padding_token_id},
  };
  for (const auto& [key, value] : ids) {
    if (keys.Has(key)) *value = keys.Int(key, 0, 1 << 28);
  }
  const std::pair<std::string_view, std::optional<bool>*> flags[] = {
      {"add_bos_token", &fields.add_bos_token},
      {"add_eos_token", &fields.add_eos_token},
      {"add_space_prefix", &fields.add_space_prefix},
  };
  for (const auto& [key, value] : flags) {
    if (keys.Has(key)) *value = keys.BoolOr(key, false);
  }
  BATON_RETURN_IF_ERROR(keys.status());
  BATON_RETURN_IF_ERROR(ReadList(gguf.Strings("tokenizer.ggml.tokens"), fields.tokens));
  BATON_RETURN_IF_ERROR(ReadList(gguf.Floats("tokenizer.ggml.scores"), fields.scores));
  BATON_RETURN_IF_ERROR(ReadList(gguf.Ints("tokenizer.ggml.token_type"), fields.token_types));
  BATON_RETURN_IF_ERROR(ReadList(gguf.Strings("tokenizer.ggml.merges"), fields.merges));
  return fields;
}

// The content of a file; nullopt when the file does not exist.
StatusOr<std::optional<std::string>> ReadOptional(const std::string& path, size_t limit) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::optional<std::string>();
  BATON_ASSIGN_OR_RETURN(std::string text, ReadFile(path, limit));
  return std::optional<std::string>(std::move(text));
}

// Reads a tokenizer's file and the text of tokenizer_config.json, which is empty where that is
// missing.
using SpecReader = StatusOr<TokenizerSpec> (*)(std::string_view file, std::string_view config);

struct TokenizerFile {
  std::string_view name;
  SpecReader read;
};

// The first one in a directory is read.
constexpr TokenizerFile kTokenizerFiles[] = {
    {"tokenizer.json", &TokenizerSpecFromJson},
    {"tekken.json",
     [](std::string_view file, std::string_view) { return TokenizerSpecFromTekken(file); }},
    {"tiktoken.model", &TokenizerSpecFromTiktoken},
    {"tokenizer.model", &TokenizerSpecFromSentencePiece},
};

const TokenizerFile& FileIn(const std::string& directory) {
  std::error_code ignored;
  for (const TokenizerFile& file : kTokenizerFiles) {
    if (std::filesystem::exists(fmt::format("{}/{}", directory, file.name), ignored)) return file;
  }
  return kTokenizerFiles[0];
}

StatusOr<TokenizerSpec> SpecFromDirectory(const std::string& directory) {
  const TokenizerFile& file = FileIn(directory);
  const std::string path = fmt::format("{}/{}", directory, file.name);
  BATON_ASSIGN_OR_RETURN(const auto config,
                         ReadOptional(directory + "/tokenizer_config.json", kMaxTokenizerBytes));
  BATON_ASSIGN_OR_RETURN(const std::string tokenizer, ReadFile(path, kMaxTokenizerBytes));
  auto spec = file.read(tokenizer, config.value_or(""));
  if (!spec.ok()) return Annotate(spec.status(), path);
  return spec;
}

void AddEndTokens(const ModelSpec& model, TokenizerSpec& spec) {
  for (const TokenId token : model.eos) {
    const bool known = std::find(spec.eos.begin(), spec.eos.end(), token) != spec.eos.end();
    if (!known && static_cast<size_t>(token) < spec.pieces.size()) spec.eos.push_back(token);
  }
}

// The value of `chat_template` in a JSON file; nullopt when the file or the key does not exist.
StatusOr<std::optional<std::string>> TemplateInJson(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const auto text, ReadOptional(path, kMaxTokenizerBytes));
  std::optional<std::string> none;
  if (!text) return none;
  BATON_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(path, *text));
  if (!json.is_object()) return InvalidArgument("{}: not a JSON object", path);
  const auto found = json.find("chat_template");
  if (found == json.end() || found->is_null()) return none;
  if (found->is_string()) return std::optional<std::string>(found->get<std::string>());
  if (found->is_array()) {
    for (const auto& entry : *found) {
      const bool named = entry.is_object() && entry.contains("name") && entry["name"] == "default";
      if (named && entry.contains("template") && entry["template"].is_string()) {
        return std::optional<std::string>(entry["template"].get<std::string>());
      }
    }
  }
  return InvalidArgument("{}: chat_template must be a string, or a list with one named \"default\"",
                         path);
}

Status NoTemplate(const std::string& path) {
  return MakeStatus(StatusCode::kNotFound, "model {} has no chat template", path);
}

StatusOr<ChatTemplateSource> TemplateFromDirectory(const std::string& directory) {
  const std::string own = directory + "/chat_template.jinja";
  BATON_ASSIGN_OR_RETURN(auto file, ReadOptional(own, kMaxTemplateBytes));
  if (file) return ChatTemplateSource{*std::move(file), own};
  for (const std::string_view name : {"tokenizer_config.json", "chat_template.json"}) {
    const std::string path = fmt::format("{}/{}", directory, name);
    BATON_ASSIGN_OR_RETURN(auto text, TemplateInJson(path));
    if (text) return ChatTemplateSource{*std::move(text), path + ": chat_template"};
  }
  return NoTemplate(directory);
}

}  // namespace

std::string TokenizerFileIn(const std::string& directory) {
  return fmt::format("{}/{}", directory, FileIn(directory).name);
}

StatusOr<TokenizerSpec> LoadTokenizerSpec(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const ModelLocation location, LocateModel(path));
  if (location.kind == ModelLocation::Kind::kHfDirectory) {
    BATON_ASSIGN_OR_RETURN(TokenizerSpec spec, SpecFromDirectory(location.path));
    BATON_ASSIGN_OR_RETURN(const ModelSpec model, SpecFromHfDirectory(location.path));
    AddEndTokens(model, spec);
    return spec;
  }
  BATON_ASSIGN_OR_RETURN(const auto gguf, GgufFile::Open(location.path));
  BATON_ASSIGN_OR_RETURN(const GgufTokenizerFields fields, ReadFields(*gguf));
  auto spec = TokenizerSpecFromGguf(fields);
  if (!spec.ok()) return Annotate(spec.status(), location.path);
  BATON_ASSIGN_OR_RETURN(const ModelSpec model, SpecFromGguf(*gguf));
  AddEndTokens(model, *spec);
  return spec;
}

StatusOr<int32_t> CountTokenIds(const std::string& path,
                                const ModelSpec& model,
                                const TokenizerSpec& tokenizer) {
  if (std::cmp_less_equal(tokenizer.pieces.size(), model.vocab)) {
    return static_cast<int32_t>(tokenizer.pieces.size());
  }
  return InvalidArgument(
      "model {}: its tokenizer has {} token ids, but its embedding has only {} rows; each token id "
      "needs a row: the tokenizer and the weights must be of the same model",
      path,
      tokenizer.pieces.size(),
      model.vocab);
}

StatusOr<ChatTemplateSource> LoadChatTemplate(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const ModelLocation location, LocateModel(path));
  if (location.kind == ModelLocation::Kind::kHfDirectory) {
    return TemplateFromDirectory(location.path);
  }
  BATON_ASSIGN_OR_RETURN(const auto gguf, GgufFile::Open(location.path));
  constexpr const char* kKey = "tokenizer.chat_template";
  if (!gguf->Has(kKey)) return NoTemplate(location.path);
  BATON_ASSIGN_OR_RETURN(const std::string_view text, gguf->String(kKey));
  return ChatTemplateSource{std::string(text), fmt::format("{}: {}", location.path, kKey)};
}

}  // namespace baton
