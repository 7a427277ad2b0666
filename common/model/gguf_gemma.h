#pragma once

#include "common/base/status.h"
#include "common/model/config_fields.h"
#include "common/model/model_spec.h"

namespace baton {

// Reads the blocks, scales, caps and windows of Gemma 2 and 3 from a GGUF file, after the rotary
// embedding. Errors as SpecFromGguf.
Status ReadGemmaOfGguf(GgufFields& fields, ModelSpec& spec);

}  // namespace baton
