#pragma once

#include "common/base/status.h"
#include "common/model/config_fields.h"
#include "common/model/gguf_file.h"
#include "common/model/model_spec.h"

// The latents of the architecture "deepseek2" of GGUF files, which DeepSeek V2 and V3 have.
namespace baton {

// Reads the sizes of latents and heads, before the rotary embedding. Errors as SpecFromGguf.
Status ReadLatentOfGguf(GgufFields& fields, const GgufFile& gguf, ModelSpec& spec);

// Reads the scale of attention, which depends on the scaling of the rotary embedding.
Status ReadLatentScaleOfGguf(GgufFields& fields, ModelSpec& spec);

}  // namespace baton
