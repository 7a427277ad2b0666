#pragma once

#include "common/base/status.h"
#include "common/model/config_fields.h"
#include "common/model/model_spec.h"

// Mamba layers in config.json.
namespace baton {

bool HasMamba(ModelFamily family);

// The number of layers, which Nemotron-H may state by the list of its layers alone. Errors in
// `fields`.
int32_t ReadLayerCount(JsonFields& fields, ModelFamily family);

// Reads the sizes of the Mamba layers, what each layer consists of, and the factors of Falcon-H1.
// Needs the sizes of attention. Errors as SpecFromHfDirectory.
Status ReadMamba(JsonFields& fields, ModelSpec& spec);

}  // namespace baton
