#pragma once

#include <string>

#include "common/base/status.h"
#include "common/cluster/request.h"

namespace baton {

// How a model makes an embedding of the hidden states of a text.
struct PoolingConfig {
  Pooling pooling = Pooling::kNone;
  bool normalize = false;    // to length 1
  std::string why_not = {};  // with kNone: why the model makes none; the end of "the model …"
};

// Reads the files of sentence-transformers in a Hugging Face directory: modules.json, the
// config.json of its Pooling module, and whether a Normalize module follows. kNone without such
// files, for a GGUF file, and for modules that are not supported. Errors: InvalidArgument naming
// file and key.
StatusOr<PoolingConfig> LoadPoolingConfig(const std::string& path);

}  // namespace baton
