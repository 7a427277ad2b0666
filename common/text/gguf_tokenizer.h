#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// The values of a GGUF file's `tokenizer.ggml.*` keys. The fields are named after the keys (ggml,
// docs/gguf.md); a field whose key the file lacks stays empty.
struct GgufTokenizerFields {
  std::string model;  // "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE)
  std::string pre;    // for "gpt2": the name of the split pattern
  std::vector<std::string> tokens;
  std::vector<float> scores;  // for "llama": pieces of higher score merge first
  std::vector<int32_t>
      token_types;  // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  std::vector<std::string> merges;  // for "gpt2": "left right", best first
  std::optional<int64_t> bos_token_id, eos_token_id, eot_token_id, eom_token_id, unknown_token_id,
      padding_token_id;
  std::optional<bool> add_bos_token, add_eos_token, add_space_prefix;
};

// Errors: InvalidArgument or Unimplemented that name the key, its value, and what would be right.
StatusOr<TokenizerSpec> TokenizerSpecFromGguf(const GgufTokenizerFields& fields);

}  // namespace baton
