#pragma once

#include "common/base/status.h"
#include "common/model/config_fields.h"
#include "common/model/model_spec.h"

namespace baton {

// Whether GGUF files of the family may have experts.
bool MayHaveExpertsInGguf(ModelFamily family);

// Reads the experts and their router, and which layers have them. Of the architecture "deepseek2",
// the router tells the family. Errors as SpecFromGguf.
Status ReadExpertsOfGguf(GgufFields& fields, const GgufFile& gguf, ModelSpec& spec);

}  // namespace baton
