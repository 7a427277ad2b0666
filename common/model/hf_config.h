#pragma once

#include <string>

#include "common/base/status.h"
#include "common/model/model_spec.h"

namespace baton {

// Reads the spec from `directory`/config.json, and more end tokens from generation_config.json when
// it exists. Accepts the keys of transformers 5 (rope_parameters) and the older ones (rope_theta,
// rope_scaling). Errors: NotFound, InvalidArgument or Unimplemented naming file, key, value and the
// valid values.
StatusOr<ModelSpec> SpecFromHfDirectory(const std::string& directory);

}  // namespace baton
