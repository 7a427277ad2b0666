#pragma once

#include <cstdint>

#include "common/base/hash.h"
#include "common/kvcache/layout.h"

namespace baton {

// The properties of a model that the engine needs.
struct ModelTraits {
  int32_t context_length = 0;  // most tokens of prompt and output together
  int32_t hidden = 0;          // numbers of a hidden state
  int32_t vocabulary = 0;      // token ids are 0 … vocabulary - 1; the head may have more rows
  int32_t max_rows = 0;        // most tokens in one step
  int32_t max_logit_rows = 0;  // most logits rows in one step
  int32_t block_token_multiple = 1;  // tokens of a KV block are a multiple of this
  DenseKv kv = {};  // of the whole model; LayoutFor adds block_tokens and dtype from the options
  bool fp8_kv = false;  // the model was loaded for an FP8 KV cache
  Hash128 fingerprint = {};
};

}  // namespace baton
