#pragma once

#include "common/base/status.h"
#include "common/model/config_fields.h"
#include "common/model/hf_families.h"
#include "common/model/model_spec.h"

namespace baton {

// Reads the rotary embedding and its scaling from config.json, in the keys of transformers 5
// (rope_parameters) or in older ones. Needs the head dimension and the context length, which
// scaling may stretch.
Status ReadRope(const HfFamily& family, JsonFields& fields, ModelSpec& spec);

}  // namespace baton
