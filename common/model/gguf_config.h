#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/model/gguf_file.h"
#include "common/model/model_spec.h"
#include "common/model/weight_source.h"

namespace baton {

// The architectures of files that can be read.
std::vector<std::string_view> GgufArchitectures();

// Reads the spec from the metadata of a GGUF file (keys: ggml, docs/gguf.md) and from the names of
// its tensors. Errors: NotFound, InvalidArgument or Unimplemented naming file, key, value and the
// valid values.
StatusOr<ModelSpec> SpecFromGguf(const GgufFile& gguf);

// Whether the file has this weight, or that of the first expert.
bool HasTensor(const GgufFile& gguf, WeightKind kind, int32_t layer);
// Whether it is in the file for one of the layers.
bool HasTensorInLayers(const GgufFile& gguf, WeightKind kind, int32_t layers);

}  // namespace baton
