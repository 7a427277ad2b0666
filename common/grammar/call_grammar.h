#pragma once

#include <vector>

#include "common/chat_format/chat_format.h"
#include "common/grammar/call_arguments.h"
#include "common/grammar/grammar_spec.h"

namespace baton {

// One or several calls of `tools` in a model's own format, which ChatParser reads; with `one`, one.
// A model that does not stop calls a bounded number of times.
// `tools` is not empty. Errors: InvalidArgument for kNone, and for a name or a schema that the
// format cannot write.
StatusOr<GrammarPart> CallsPart(ToolCallFormat format,
                                const std::vector<CallableTool>& tools,
                                bool one);

// Free text in which every call has valid arguments. In a format whose calls have no marker, text
// that could be read as a call is a call. Errors: as above.
StatusOr<GrammarPart> TextWithCallsPart(ToolCallFormat format,
                                        const std::vector<CallableTool>& tools,
                                        bool one);

// `part` as the answer of a model that may reason before it. `in_reasoning`: the prompt ends inside
// of the reasoning.
GrammarPart AfterReasoning(ReasoningFormat format, bool in_reasoning, GrammarPart part);

}  // namespace baton
