#pragma once

#include "common/base/hash.h"
#include "common/model/model_spec.h"
#include "common/model/weight_source.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// Names a shape of models: every field of the spec that shapes the computation. Neither the end
// tokens nor the context length are among them, which a worker's settings may shorten.
Hash128 ShapeHash(const ModelSpec& spec);

// Names a tokenizer: everything that decides how text becomes tokens and back.
Hash128 TokenizerHash(const TokenizerSpec& spec);

// Names a model: workers whose fingerprints differ must not exchange KV. XXH3-128 over what
// ShapeHash takes and the identity of the weights: each tensor's name, type and shape with 4 KiB
// from its begin, middle and end, in the order of names. The same checkpoint as one file or in
// shards has one fingerprint; as GGUF or safetensors, two.
Hash128 Fingerprint(const ModelSpec& spec, const WeightSource& weights);

}  // namespace baton
