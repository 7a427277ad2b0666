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

// Where there are more KV heads than groups of B and C, gives several key heads the same, so that
// ranks can divide both alike. A norm of a group would then be one of several ranks, so a model
// with one stays as it is.
void CopyKeyHeads(ModelSpec& spec);

// Reads the sizes of the Mamba layers, what each layer consists of, and the factors of Falcon-H1.
// Needs the sizes of attention. Errors as SpecFromHfDirectory.
Status ReadMamba(JsonFields& fields, ModelSpec& spec);

}  // namespace baton
