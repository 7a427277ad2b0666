#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace baton::jinja {

struct Token {
  enum class Kind : uint8_t {
    kData,  // text outside of tags
    kBlockBegin,
    kBlockEnd,
    kPrintBegin,
    kPrintEnd,
    kName,
    kString,  // `text` is the content, escapes resolved
    kInteger,
    kFloat,
    kOperator,  // `text` is the operator
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int64_t integer = 0;
  double number = 0;
  int line = 1;
};

// Cuts a Jinja template into tokens with trim_blocks and lstrip_blocks on and one final new line
// removed (Hugging Face's settings; Jinja 3.1, "Whitespace Control"). Comments and raw blocks are
// resolved here. Errors: InvalidArgument with the line.
StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace baton::jinja
