#pragma once

#include <string>

#include "common/base/status.h"
#include "common/model/model_spec.h"

namespace baton {

// Reads the spec from `directory`/config.json, with end tokens from generation_config.json, too,
// when it exists. Understands the keys of transformers 5 (rope_parameters) and older ones
// (rope_theta, rope_scaling). Errors: NotFound, InvalidArgument or Unimplemented naming file, key,
// value and what would be right.
StatusOr<ModelSpec> SpecFromHfDirectory(const std::string& directory);

}  // namespace baton
