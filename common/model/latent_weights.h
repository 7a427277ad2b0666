#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "common/model/decoder_slice.h"
#include "common/model/decoder_weights.h"
#include "common/model/model_spec.h"
#include "common/model/weight_loader.h"

namespace baton {

// Loads the weights of multi-head latent attention, which a layer has in place of q, k and v.
// Errors as LoadDecoderWeights.
Status LoadLatent(WeightLoader& loader,
                  const ModelSpec& spec,
                  const DecoderSlice& slice,
                  int32_t layer,
                  LatentWeights& to);

}  // namespace baton
