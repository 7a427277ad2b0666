#pragma once

#include <cstddef>

#include "common/base/status.h"
#include "common/grammar/call_arguments.h"
#include "common/grammar/marked_formats.h"

namespace baton {

// Whether the arguments of a call end at a marker, wherever it stands, so that they must have none
// (SchemaUse::kCall).
bool EndsAtMarkers(ToolCallFormat format);

// Whether a format writes the arguments of a call between tags, and strings without quotes.
bool IsTagged(ToolCallFormat format);

// The arguments of a call of `tool` in such a format (`formats.calls`), exactly as its template
// writes them. What a model may write is what TaggedValue reads as a value of the schema: a string
// is the text between its tags, and has no tag of the format; what may be a string or something
// else is JSON, with quotation marks. `written`: as ReadArguments. Errors: InvalidArgument.
StatusOr<GrammarPart> TaggedArguments(const MarkedFormats& formats,
                                      const CallableTool& tool,
                                      size_t& written);

}  // namespace baton
