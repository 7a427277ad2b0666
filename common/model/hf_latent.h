#pragma once

#include "common/base/status.h"
#include "common/model/config_fields.h"
#include "common/model/model_spec.h"

// Multi-head latent attention in config.json.
namespace baton {

bool HasLatentAttention(ModelFamily family);

// Reads the sizes of the latents and of the heads, before the rotary embedding. Errors as
// SpecFromHfDirectory.
Status ReadLatent(JsonFields& fields, ModelSpec& spec);

// Reads the index of DeepSeek-V3.2, which selects the tokens that a row attends to. All layers must
// have one.
Status ReadIndex(JsonFields& fields, ModelSpec& spec);

// Completes the rotary embedding, which only a part of each head has, and reads the scale of
// attention, which depends on the scaling of the rotary embedding.
Status ReadLatentRope(JsonFields& fields, ModelSpec& spec);

// Sets the scale of attention of a model whose yarn has this `mscale_all_dim`.
void SetScaleOfYarn(double mscale_all_dim, ModelSpec& spec);

}  // namespace baton
