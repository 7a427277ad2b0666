#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/grammar/grammar_spec.h"

namespace baton {

// A tool whose calls must have arguments of a schema.
struct CallableTool {
  std::string name;
  GrammarPart parameters;  // the schema of the arguments, checked (CheckedSchema)
  // The schema as the client states it, which the parser reads; null: `parameters`.
  nlohmann::ordered_json stated = {};
};

struct CallArgument {
  std::string name;
  nlohmann::ordered_json schema;  // with the definitions to which it refers
  bool required = false;
};

// The arguments of a call, for a format that writes each on its own.
struct CallArguments {
  std::vector<CallArgument> declared;            // in the order of the schema
  std::optional<nlohmann::ordered_json> others;  // the schema of arguments with any other name
};

// The alternatives of the arguments that the schema of `tool` allows. `written`: the bytes of all
// schemas so far, which are bounded. Errors: InvalidArgument for a schema that cannot be divided
// into arguments.
StatusOr<std::vector<CallArguments>> ReadArguments(const CallableTool& tool, size_t& written);

// Adds to the bytes that are written for the calls of `tool`. Errors: InvalidArgument when there
// are too many.
Status CountArgumentBytes(const CallableTool& tool, size_t bytes, size_t& written);

}  // namespace baton
