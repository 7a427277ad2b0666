#pragma once

#include "common/base/status.h"
#include "common/model/config_fields.h"
#include "common/model/model_spec.h"

namespace baton {

// Whether the model may have experts: ReadExperts decides which layers have them, except where the
// layers state it already.
bool MayHaveExperts(const ModelSpec& spec);

// Reads the experts and their router from the config.json of such a family, and which layers have
// them. Needs the layers and the intermediate size.
Status ReadExperts(JsonFields& fields, ModelSpec& spec);

}  // namespace baton
