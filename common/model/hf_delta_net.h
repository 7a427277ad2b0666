#pragma once

#include "common/base/status.h"
#include "common/model/config_fields.h"
#include "common/model/model_spec.h"

// Gated delta nets in config.json.
namespace baton {

bool HasDeltaNets(ModelFamily family);

// Reads the sizes of the delta nets, and which layers have one. Errors as SpecFromHfDirectory.
Status ReadDeltaNets(JsonFields& fields, ModelSpec& spec);

}  // namespace baton
