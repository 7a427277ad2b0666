#pragma once

#include <string_view>

#include "common/base/status.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// Reads a Hugging Face `tokenizer.json` (BPE models only) and the `tokenizer_config.json` beside
// it, which names the special tokens (empty text when there is none). Errors: InvalidArgument or
// Unimplemented that name the field, its value, and what would be right. A setting that would
// change tokens is never ignored silently.
StatusOr<TokenizerSpec> TokenizerSpecFromJson(std::string_view tokenizer_json,
                                              std::string_view tokenizer_config);

}  // namespace baton
