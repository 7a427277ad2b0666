#pragma once

#include "common/base/status.h"
#include "common/model/config_fields.h"
#include "common/model/model_spec.h"

// Kimi delta attention in config.json.
namespace baton {

// Reads the sizes of Kimi delta attention, and which layers have it; the others have latent
// attention, which has been read. Errors as SpecFromHfDirectory.
Status ReadKimi(JsonFields& fields, ModelSpec& spec);

}  // namespace baton
