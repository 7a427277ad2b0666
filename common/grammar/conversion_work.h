#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"

namespace baton {

// What XGrammar does when it converts the text of a grammar (grammar_spec.h), which it neither
// bounds nor interrupts.
struct ConversionWork {
  // At least the number of expressions that it makes: about 0.3 µs and 100 bytes each.
  int64_t expressions = 0;
  // The bytes that it copies: the text of each schema, once for each schema around it and for each
  // value in which it stands. About 5 ns each.
  int64_t copied_bytes = 0;
  // The pairs of values that it compares to see whether the options of oneOf exclude each other:
  // about 10 ns each.
  int64_t compared_pairs = 0;
  // At least the depth of its recursion through inner schemas and through references: up to 1.5 KiB
  // of stack each, several times as much with a sanitizer.
  int64_t levels = 0;
};

ConversionWork ConversionWorkOf(const nlohmann::ordered_json& spec);

// Checks that `spec` is converted within about 0.3 s of processor time, 50 MiB and 2 MiB of stack.
// Errors: InvalidArgument.
Status CheckConversionWork(const nlohmann::ordered_json& spec);

}  // namespace baton
