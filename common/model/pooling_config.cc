#include "common/model/pooling_config.h"

#include <filesystem>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/base/mapped_file.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

StatusOr<Json> ReadJson(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseJson(path, text);
}

// The member `name` of a module, a text.
StatusOr<std::string> TextOf(const Json& module, const char* name, const std::string& path) {
  const bool known = module.is_object() && module.contains(name) && module[name].is_string();
  if (!known) return InvalidArgument("{}: a module has no text \"{}\"", path, name);
  return module[name].get<std::string>();
}

// The class of "sentence_transformers.models.Pooling", and of other paths to it.
std::string ClassOf(const std::string& type) {
  return type.substr(type.rfind('.') + 1);
}

// Reads pooling_mode, or the earlier pooling_mode_lasttoken and so on. One of them must be true.
StatusOr<PoolingConfig> ReadPooling(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const Json config, ReadJson(path));
  if (!config.is_object()) return InvalidArgument("{}: it is not a JSON object", path);
  constexpr std::string_view kPrefix = "pooling_mode_";
  std::string mode;
  for (const auto& [key, value] : config.items()) {
    const bool chosen = key.starts_with(kPrefix) && value == true;
    std::string found = chosen ? key.substr(kPrefix.size()) : "";
    if (key == "pooling_mode" && value.is_string()) found = value.get<std::string>();
    if (found.empty()) continue;
    if (!mode.empty()) {
      return PoolingConfig{.why_not = "joins several kinds of pooling, which is not supported"};
    }
    mode = std::move(found);
  }
  if (mode == "lasttoken") return PoolingConfig{.pooling = Pooling::kLast};
  if (mode == "mean_tokens" || mode == "mean") return PoolingConfig{.pooling = Pooling::kMean};
  if (mode == "cls_token" || mode == "cls") return PoolingConfig{.pooling = Pooling::kFirst};
  if (mode.empty()) return InvalidArgument("{}: no pooling_mode is chosen", path);
  return PoolingConfig{.why_not = fmt::format("has the pooling \"{}\"; supported are lasttoken, "
                                              "mean_tokens and cls_token",
                                              mode)};
}

}  // namespace

StatusOr<PoolingConfig> LoadPoolingConfig(const std::string& path) {
  const std::string modules_path = (fs::path(path) / "modules.json").string();
  std::error_code error;
  if (!fs::exists(modules_path, error)) {
    return PoolingConfig{.why_not = "has no pooling (no modules.json of sentence-transformers)"};
  }
  BATON_ASSIGN_OR_RETURN(const Json modules, ReadJson(modules_path));
  if (!modules.is_array()) return InvalidArgument("{}: it is not a JSON array", modules_path);
  PoolingConfig config{.why_not = "has no pooling (modules.json lists no module Pooling)"};
  for (const Json& module : modules) {
    BATON_ASSIGN_OR_RETURN(const std::string type, TextOf(module, "type", modules_path));
    const std::string name = ClassOf(type);
    if (name == "Transformer") continue;
    if (name == "Pooling") {
      BATON_ASSIGN_OR_RETURN(const std::string folder, TextOf(module, "path", modules_path));
      BATON_ASSIGN_OR_RETURN(config,
                             ReadPooling((fs::path(path) / folder / "config.json").string()));
    } else if (name == "Normalize") {
      config.normalize = true;
    } else {
      return PoolingConfig{
          .why_not = fmt::format("has a module {} (modules.json), which is not supported", name)};
    }
  }
  return config;
}

}  // namespace baton
