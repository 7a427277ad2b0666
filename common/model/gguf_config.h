#pragma once

#include "common/base/status.h"
#include "common/model/gguf_file.h"
#include "common/model/model_spec.h"

namespace baton {

// Reads the spec from a GGUF file's metadata (keys: ggml, docs/gguf.md) and from which tensors it
// has. Errors: NotFound, InvalidArgument or Unimplemented naming file, key, value and what would be
// right.
StatusOr<ModelSpec> SpecFromGguf(const GgufFile& gguf);

}  // namespace baton
