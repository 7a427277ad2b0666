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

// Splits a Jinja template into tokens, with trim_blocks and lstrip_blocks and without one final new
// line (Hugging Face's settings; Jinja 3.1, "Whitespace Control"). The lexer removes comments and
// turns raw blocks into data. Errors: InvalidArgument with the line.
StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace baton::jinja
