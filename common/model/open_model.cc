#include "common/model/open_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "common/model/dummy_weights.h"
#include "common/model/file_weights.h"
#include "common/model/gguf_config.h"
#include "common/model/gguf_split.h"
#include "common/model/hf_config.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

// "/models/tiny/" → "tiny"; "/models/tiny-00001-of-00002.gguf" → "tiny".
std::string LastPart(const std::string& path) {
  fs::path normal = fs::path(path).lexically_normal();
  if (!normal.has_filename()) normal = normal.parent_path();
  if (normal.extension() != ".gguf") return normal.filename().string();
  return std::string(WithoutPartNumber(normal.stem().string()));
}

// Whether the files are all parts of one split model, in the order of their numbers.
bool ArePartsOfOne(const std::vector<std::string>& sorted) {
  const auto count = static_cast<int64_t>(sorted.size());
  for (int64_t i = 0; i < count; ++i) {
    if (sorted[i] != PathOfPart(sorted.front(), i + 1, count)) return false;
  }
  return count > 0;
}

StatusOr<OpenedModel> OpenGguf(const std::string& path, const OpenOptions& options) {
  BATON_ASSIGN_OR_RETURN(auto gguf, GgufFile::Open(path));
  OpenedModel model;
  BATON_ASSIGN_OR_RETURN(model.spec, SpecFromGguf(*gguf));
  model.name = LastPart(path);
  if (options.format == LoadFormat::kDummy) {
    model.weights = std::make_unique<DummyWeights>(options.dummy_seed);
  } else {
    model.weights = std::make_unique<FileWeights>(std::move(gguf), GgufNames(model.spec));
  }
  return model;
}

StatusOr<OpenedModel> OpenDirectory(const std::string& path, const OpenOptions& options) {
  OpenedModel model;
  BATON_ASSIGN_OR_RETURN(model.spec, SpecFromHfDirectory(path));
  model.name = LastPart(path);
  BATON_ASSIGN_OR_RETURN(QuantizationConfig quantization, ReadQuantizationOf(path));
  if (options.format == LoadFormat::kDummy) {
    model.weights = std::make_unique<DummyWeights>(options.dummy_seed, quantization);
    return model;
  }
  BATON_ASSIGN_OR_RETURN(SafetensorsDirectory opened, OpenSafetensorsDirectory(path));
  model.weights = std::make_unique<FileWeights>(
      path, std::move(opened), HuggingFaceNames(model.spec), std::move(quantization));
  return model;
}

}  // namespace

StatusOr<ModelLocation> LocateModel(const std::string& path) {
  using Kind = ModelLocation::Kind;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return MakeStatus(StatusCode::kNotFound, "model {} does not exist", path);
  }
  if (!fs::is_directory(status)) return ModelLocation{Kind::kGgufFile, path};
  if (fs::exists(fs::path(path) / "config.json", error)) {
    return ModelLocation{Kind::kHfDirectory, path};
  }
  std::vector<std::string> files;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".gguf") files.push_back(entry->path().string());
  }
  std::ranges::sort(files);
  if (files.size() == 1 || ArePartsOfOne(files)) {
    return ModelLocation{Kind::kGgufFile, files.front()};
  }
  return InvalidArgument(
      "model {} is a directory without config.json and with {} .gguf files; give a GGUF file or a "
      "Hugging Face directory",
      path,
      files.size());
}

StatusOr<OpenedModel> OpenModel(const std::string& path, const OpenOptions& options) {
  BATON_ASSIGN_OR_RETURN(const ModelLocation location, LocateModel(path));
  return location.kind == ModelLocation::Kind::kGgufFile ? OpenGguf(location.path, options)
                                                         : OpenDirectory(location.path, options);
}

bool FindOwnHead(OpenedModel& model) {
  model.spec.own_head = model.spec.tied_head &&
                        model.weights->HasDifferent({WeightKind::kHead}, {WeightKind::kEmbedding});
  return model.spec.own_head;
}

StatusOr<ModelSpec> LoadModelSpec(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const ModelLocation location, LocateModel(path));
  if (location.kind == ModelLocation::Kind::kHfDirectory) {
    return SpecFromHfDirectory(location.path);
  }
  BATON_ASSIGN_OR_RETURN(const auto gguf, GgufFile::Open(location.path));
  return SpecFromGguf(*gguf);
}

}  // namespace baton
