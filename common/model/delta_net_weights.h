#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "common/model/decoder_slice.h"
#include "common/model/decoder_weights.h"
#include "common/model/model_spec.h"
#include "common/model/weight_loader.h"

namespace baton {

// Loads the weights of a gated delta net, which a layer has in place of those of attention: of the
// key heads that belong to the KV heads of the slice. Errors as LoadDecoderWeights.
Status LoadDeltaNet(WeightLoader& loader,
                    const ModelSpec& spec,
                    const DecoderSlice& slice,
                    int32_t layer,
                    LayerWeights& to);

}  // namespace baton
