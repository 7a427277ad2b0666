#pragma once

#include <string_view>

#include "common/base/status.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// Reads a `tokenizer.model`, the file of SentencePiece (sentencepiece.proto; BPE and unigram
// models), and the `tokenizer_config.json` beside it, which names further special tokens (empty
// text when there is none). Errors: InvalidArgument or Unimplemented that name the field, its
// value, and what would be right.
StatusOr<TokenizerSpec> TokenizerSpecFromSentencePiece(std::string_view model,
                                                       std::string_view tokenizer_config);

}  // namespace baton
