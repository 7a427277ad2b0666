#pragma once

#include <cstddef>

#include "common/text/tokenizer_spec.h"

namespace baton {

// Longer tokens are refused: a token of n bytes has n - 1 cuts to try.
inline constexpr size_t kMaxRankedTokenBytes = 4096;

// Adds the merges of a vocabulary of tiktoken, whose pieces from `first` on stand in the order of
// their ranks: two neighbours may be joined when their bytes together are a piece, the piece of the
// lowest rank first. That is a merge for each cut of a piece into two pieces.
void AddRankedMerges(size_t first, TokenizerSpec& spec);

}  // namespace baton
