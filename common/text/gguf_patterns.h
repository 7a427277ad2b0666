#pragma once

#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// What a name in the GGUF key `tokenizer.ggml.pre` stands for: the names are llama.cpp's, and the
// splits those of the `tokenizer.json` from which its converter read the name.
struct GgufPattern {
  std::vector<SplitStep> splits;
  bool ignore_merges = false;
  bool add_bos = false;  // where the file has no `tokenizer.ggml.add_bos_token`
};

// Error: Unimplemented, with the names that are known.
StatusOr<GgufPattern> GgufPatternOf(std::string_view pre);

}  // namespace baton
