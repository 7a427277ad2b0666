#pragma once

#include "common/base/status.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// Checks that all sizes, ids and ranks in `spec` are valid. Errors: InvalidArgument that names the
// first invalid one.
Status CheckTokenizerSpec(const TokenizerSpec& spec);

}  // namespace baton
