#pragma once

#include "common/base/status.h"
#include "common/model/config_fields.h"
#include "common/model/model_spec.h"

namespace baton {

// Reads what only some families have: LayerNorm, windows in some layers, LongRoPE, recurrent
// layers. The rotary embedding is known already. Errors as SpecFromGguf.
Status ReadFamilyOfGguf(GgufFields& fields, const GgufFile& gguf, ModelSpec& spec);

}  // namespace baton
