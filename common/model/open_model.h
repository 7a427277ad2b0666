#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/model/model_spec.h"
#include "common/model/weight_source.h"

namespace baton {

// The location of a model: a GGUF file, or a Hugging Face directory (config.json, safetensors,
// tokenizer.json).
struct ModelLocation {
  enum class Kind : uint8_t { kGgufFile, kHfDirectory };
  Kind kind = Kind::kGgufFile;
  std::string path;
};

// Detects the kind of the model at `path`. A directory without config.json but with exactly one
// *.gguf file, or with all parts of one split GGUF model (gguf_split.h), stands for that file.
// Errors: NotFound and InvalidArgument naming the path and what is expected there.
StatusOr<ModelLocation> LocateModel(const std::string& path);

enum class LoadFormat : uint8_t {
  kAuto,   // the weights in the files
  kDummy,  // random weights of the model's shape (dummy_weights.h); no weight file is needed
};

struct OpenOptions {
  LoadFormat format = LoadFormat::kAuto;
  uint64_t dummy_seed = 0;
};

struct OpenedModel {
  std::string name;  // the last part of the path, without ".gguf" and the number of a part
  ModelSpec spec;
  std::unique_ptr<WeightSource> weights;
};

// Opens a model: reads its spec and maps its weight files, but does not read the weights. Errors
// name file, key or tensor.
StatusOr<OpenedModel> OpenModel(const std::string& path, const OpenOptions& options = {});

// Looks for a head of its own in the files of a model whose configuration ties the head to the
// embedding. Where both are there and differ in type, shape or content, sets ModelSpec::own_head,
// as transformers 5 does, and returns true. Reads both tensors. Call it before the weights are
// loaded.
bool FindOwnHead(OpenedModel& model);

// Reads only the spec. In a Hugging Face directory it opens only the configuration files.
StatusOr<ModelSpec> LoadModelSpec(const std::string& path);

}  // namespace baton
