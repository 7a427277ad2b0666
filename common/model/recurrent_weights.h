#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "common/model/decoder_slice.h"
#include "common/model/decoder_weights.h"
#include "common/model/model_spec.h"
#include "common/model/weight_loader.h"

namespace baton {

// Loads the weights of the recurrent part of a layer: of the key heads that belong to the KV heads
// of the slice. Errors as LoadDecoderWeights.
Status LoadRecurrent(WeightLoader& loader,
                     const ModelSpec& spec,
                     const DecoderSlice& slice,
                     int32_t layer,
                     RecurrentWeights& to);

}  // namespace baton
