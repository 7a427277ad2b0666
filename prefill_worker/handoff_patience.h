#pragma once

#include <cstdint>

#include "common/base/clock.h"
#include "common/cluster/load.h"

namespace baton {

// How long the writes of a computed prompt may still take before its request is better served
// elsewhere: twice the time to compute the whole prompt, but at least 4 s. The step times of `load`
// tell the time. While the engine does not know them yet, it is `computed`, the time of this
// prompt, which other prompts lengthen and cached tokens shorten.
Duration HandoffPatience(const EngineLoad& load, uint32_t prompt_tokens, Duration computed);

}  // namespace baton
