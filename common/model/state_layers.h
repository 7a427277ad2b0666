#pragma once

#include "common/kvcache/layout.h"
#include "common/model/model_spec.h"

namespace baton {

// The layers of a model that keep a state for each sequence, and its planes. A plane has as many
// heads as the model has KV heads: each has the key heads of the delta net that go to the same rank
// as the KV head.
StateLayers StateLayersOf(const ModelSpec& spec);

}  // namespace baton
