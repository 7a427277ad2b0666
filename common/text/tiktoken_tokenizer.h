#pragma once

#include <string_view>

#include "common/base/status.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// Reads a `tiktoken.model` (one line for each token, the lowest rank first: its bytes in base64 and
// its rank, which is its id) and the `tokenizer_config.json` beside it, which names the special
// tokens. The file does not have the pattern that splits the text: the config's tokenizer_class
// decides, and TikTokenTokenizer (Kimi K2, Kimi Linear, Moonlight) is the only one that is known.
// Errors: InvalidArgument or Unimplemented that name the line or the field, and what would be
// right.
StatusOr<TokenizerSpec> TokenizerSpecFromTiktoken(std::string_view ranks,
                                                  std::string_view tokenizer_config);

}  // namespace baton
