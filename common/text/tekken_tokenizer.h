#pragma once

#include <string_view>

#include "common/base/status.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// Reads a `tekken.json`, the tokenizer of Mistral's models since Mistral Nemo: special tokens with
// the first ids, then tokens by their ranks as in tiktoken, and the pattern that splits the text.
// Text begins with <s>. Format: Tekkenizer of the package mistral_common. Errors: InvalidArgument
// that names the field, and what would be right.
StatusOr<TokenizerSpec> TokenizerSpecFromTekken(std::string_view tekken_json);

}  // namespace baton
