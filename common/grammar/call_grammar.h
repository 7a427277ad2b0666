#pragma once

#include <vector>

#include "common/grammar/call_arguments.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/marked_formats.h"

// A marker that is a special token is written as that token only, and text without it is no call.
namespace baton {

// One or several calls of `tools` in a model's own format, which ChatParser reads; with `one`, one.
// A model that does not stop calls a bounded number of times.
// `tools` is not empty. Errors: InvalidArgument for kNone, and for a name or a schema that the
// format cannot write.
StatusOr<GrammarPart> CallsPart(const MarkedFormats& formats,
                                const std::vector<CallableTool>& tools,
                                bool one);

// Free text in which every call has valid arguments. In a format whose calls have no marker, text
// that could be read as a call is a call. Errors: as above.
StatusOr<GrammarPart> TextWithCallsPart(const MarkedFormats& formats,
                                        const std::vector<CallableTool>& tools,
                                        bool one);

// `part` as the answer of a model that may reason before it. `in_reasoning`: the prompt ends inside
// of the reasoning.
GrammarPart AfterReasoning(const MarkedFormats& formats, bool in_reasoning, GrammarPart part);

// `part` as an answer that is no call, where the format writes it in a message.
GrammarPart InAnswer(const MarkedFormats& formats, GrammarPart part);

}  // namespace baton
