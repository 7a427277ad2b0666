#pragma once

#include "common/base/status.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// InvalidArgument naming the first thing in `spec` that contradicts the rest.
Status CheckTokenizerSpec(const TokenizerSpec& spec);

}  // namespace baton
