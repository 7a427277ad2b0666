#pragma once

#include <cstdint>

#include "common/model/model_spec.h"

namespace baton {

// The number of weights of a model, whatever types and layouts files have them in. Rotary
// embeddings that some files also have, and tensors that are not loaded, are not counted.
int64_t CountParameters(const ModelSpec& spec);

}  // namespace baton
