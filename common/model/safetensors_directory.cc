#include "common/model/safetensors_directory.h"

#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/base/mapped_file.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxIndexBytes = size_t{32} << 20;
constexpr const char* kSingleFile = "model.safetensors";

// The file of each tensor that an index names.
using Index = std::map<std::string, std::string, std::less<>>;

StatusOr<Index> ReadIndex(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxIndexBytes));
  BATON_ASSIGN_OR_RETURN(const Json json, ParseJson(path, text));
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return InvalidArgument("{}: must be a JSON object with an object weight_map", path);
  }
  Index index;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string()) return InvalidArgument("{}: {} must name a file", path, tensor);
    const auto& name = file.get_ref<const std::string&>();
    if (name.empty() || name == "." || name == ".." ||
        name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      return InvalidArgument(
          "{}: {} is in \"{}\", which is not a plain file name in the same directory",
          path,
          tensor,
          name);
    }
    index.emplace(tensor, name);
  }
  if (index.empty()) return InvalidArgument("{}: weight_map is empty", path);
  return index;
}

// Selects the tensors of the opened files that make up the model.
class Selection final {
 public:
  Selection(const std::string& path, const Index& index) : path_(path), index_(index) {}

  // Adds those of `file`, whose name in the directory is `name`.
  Status Add(const std::string& name,
             const SafetensorsFile& file,
             std::vector<const FileTensor*>& to) {
    for (const FileTensor& tensor : file.tensors()) {
      const auto named = index_.find(tensor.name);
      if (named != index_.end() && named->second != name) continue;
      const auto [first, added] = files_.emplace(tensor.name, name);
      if (!added) {
        return InvalidArgument(
            "{}: tensor {} is in {} and in {}, and the index does not name it; it must name one of "
            "them",
            path_,
            tensor.name,
            first->second,
            name);
      }
      to.push_back(&tensor);
    }
    return OkStatus();
  }

  // Every tensor that the index names must be in its file.
  Status CheckComplete() const {
    for (const auto& [tensor, file] : index_) {
      if (files_.contains(tensor)) continue;
      return InvalidArgument("{}: tensor {} is not in {}", path_, tensor, file);
    }
    return OkStatus();
  }

 private:
  const std::string& path_;
  const Index& index_;
  absl::flat_hash_map<std::string, std::string> files_;  // of each tensor that was added
};

}  // namespace

StatusOr<SafetensorsDirectory> OpenSafetensorsDirectory(const std::string& directory) {
  SafetensorsDirectory opened;
  const std::string single = fmt::format("{}/{}", directory, kSingleFile);
  const std::string path = single + ".index.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    BATON_ASSIGN_OR_RETURN(auto file, SafetensorsFile::Open(single));
    for (const FileTensor& tensor : file->tensors()) opened.tensors.push_back(&tensor);
    opened.files.push_back(std::move(file));
    return opened;
  }
  BATON_ASSIGN_OR_RETURN(const Index index, ReadIndex(path));
  std::set<std::string> names;
  for (const auto& [tensor, file] : index) names.insert(file);
  if (!names.contains(kSingleFile) && std::filesystem::exists(single, ignored)) {
    return InvalidArgument(
        "{} has {} and an index ({}) that does not name this file: only one of them can be the "
        "model; remove the other",
        directory,
        kSingleFile,
        path);
  }
  Selection selection(path, index);
  for (const std::string& name : names) {
    BATON_ASSIGN_OR_RETURN(auto file, SafetensorsFile::Open(fmt::format("{}/{}", directory, name)));
    BATON_RETURN_IF_ERROR(selection.Add(name, *file, opened.tensors));
    opened.files.push_back(std::move(file));
  }
  BATON_RETURN_IF_ERROR(selection.CheckComplete());
  return opened;
}

}  // namespace baton
