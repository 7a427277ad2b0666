#pragma once

#include "common/base/status.h"
#include "common/model/config_fields.h"
#include "common/model/hf_families.h"
#include "common/model/model_spec.h"

namespace baton {

// Reads the rotary embedding and its scaling from config.json, in the keys of transformers 5
// (rope_parameters) or in older ones. Needs the head dimension and the context length, which
// scaling may stretch.
Status ReadRope(const HfFamily& family, JsonFields& fields, ModelSpec& spec);

// What YaRN (arXiv:2309.00071) multiplies cosines and sines by when it stretches the context by
// `factor`; `scale` is DeepSeek's `mscale` or `mscale_all_dim`, else 1.
double YarnMagnitude(double factor, double scale);

}  // namespace baton
