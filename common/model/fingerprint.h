#pragma once

#include "common/base/hash.h"
#include "common/model/model_spec.h"
#include "common/model/weight_source.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// Hashes every field of the spec that affects the computation. The end tokens and the context
// length are not included, because a worker's settings may shorten the context.
Hash128 ShapeHash(const ModelSpec& spec);

// Hashes everything that determines how a tokenizer converts text to tokens and back.
Hash128 TokenizerHash(const TokenizerSpec& spec);

// Identifies a model: workers whose fingerprints differ must not exchange KV. XXH3-128 over the
// input of ShapeHash and the identity of the weights: for each tensor in the order of names its
// name, type and shape and 4 KiB each from its begin, middle and end. A checkpoint has the same
// fingerprint as one file and as several files, but different ones as GGUF and as safetensors.
Hash128 Fingerprint(const ModelSpec& spec, const WeightSource& weights);

}  // namespace baton
