#pragma once

#include "common/base/status.h"
#include "common/model/config_fields.h"
#include "common/model/model_spec.h"

// Recurrent layers in GGUF keys. Errors as SpecFromGguf.
namespace baton {

// Reads the gated delta nets of Qwen3-Next, and which layers have them.
Status ReadDeltaNetsOfGguf(GgufFields& fields, ModelSpec& spec);

// Reads the Mamba 2 layers of Mamba 2 and Falcon-H1. The factors of Falcon-H1 are in its weights.
Status ReadStateSpaceOfGguf(GgufFields& fields, const GgufFile& gguf, ModelSpec& spec);

}  // namespace baton
