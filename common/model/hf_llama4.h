#pragma once

#include "common/base/status.h"
#include "common/model/config_fields.h"
#include "common/model/model_spec.h"

// What is particular to Llama 4 in config.json.
namespace baton {

// Reads which layers attend within chunks, and how the queries of layers without a rotary embedding
// are scaled. The layers that rotate are known already. Errors as SpecFromHfDirectory.
Status ReadLlama4Attention(JsonFields& fields, ModelSpec& spec);

}  // namespace baton
