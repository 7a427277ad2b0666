#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/chat_format/chat_format.h"
#include "common/grammar/grammar_spec.h"

namespace baton {

// A tool whose calls must have arguments of a schema.
struct CallableTool {
  std::string name;
  GrammarPart parameters;  // the schema of the arguments, checked (CheckedSchema)
};

// One or several calls of `tools` in a model's own format, which ChatParser reads; with `one`, one.
// `tools` is not empty. Errors: InvalidArgument for kNone, and for a name that the format cannot
// write.
StatusOr<GrammarPart> CallsPart(ToolCallFormat format,
                                const std::vector<CallableTool>& tools,
                                bool one);

// Free text in which every call has valid arguments. Errors: as above; InvalidArgument for a format
// whose calls have no marker.
StatusOr<GrammarPart> TextWithCallsPart(ToolCallFormat format,
                                        const std::vector<CallableTool>& tools,
                                        bool one);

// `part` as the answer of a model that may reason before it. `in_reasoning`: the prompt ends inside
// of the reasoning.
GrammarPart AfterReasoning(ReasoningFormat format, bool in_reasoning, GrammarPart part);

}  // namespace baton
