#pragma once

#include <string_view>

#include "common/base/status.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// Reads a Hugging Face `tokenizer.json` (BPE models only) and, where there is one, the
// `tokenizer_config.json` beside it (empty text where there is none), which names the special
// tokens. Errors: InvalidArgument or Unimplemented naming the field, its value, and what would be
// right. Nothing that would change tokens is passed over in silence.
StatusOr<TokenizerSpec> TokenizerSpecFromJson(std::string_view tokenizer_json,
                                              std::string_view tokenizer_config);

}  // namespace baton
