#pragma once

#include "common/base/status.h"
#include "common/grammar/call_arguments.h"
#include "common/grammar/marked_formats.h"

namespace baton {

// Whether a format writes the arguments of a call as nested values in a syntax of its own.
bool IsNested(ToolCallFormat format);

// The arguments of a call of `tool` in such a format (`formats.calls`), exactly as its template
// writes them. Errors: InvalidArgument for what the format cannot write, and for what is too large.
StatusOr<GrammarPart> NestedArguments(const MarkedFormats& formats, const CallableTool& tool);

}  // namespace baton
