#pragma once

#include "common/base/hash.h"
#include "common/model/model_spec.h"
#include "common/model/weight_source.h"

namespace baton {

// Names a model: workers whose fingerprints differ must not exchange KV. XXH3-128 over every field
// of the spec that shapes the computation (not the end tokens) and the identity of the weights:
// each tensor's name, type and shape with 4 KiB from its begin, middle and end, in the order of
// names. The same checkpoint as one file or in shards has one fingerprint; as GGUF or safetensors,
// two.
Hash128 Fingerprint(const ModelSpec& spec, const WeightSource& weights);

}  // namespace baton
