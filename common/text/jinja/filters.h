#pragma once

#include <string>

#include "common/base/status.h"
#include "common/text/jinja/value.h"

namespace baton::jinja {

class Interpreter;

// A filter's body: its input, then the arguments.
using Filter = StatusOr<Value> (*)(Interpreter&, const Value& input, const Arguments&);

// `input | name(arguments)`. InvalidArgument for an unknown filter, and for arguments or an input
// of the wrong type.
StatusOr<Value> ApplyFilter(Interpreter& interpreter,
                            const std::string& name,
                            const Value& input,
                            const Arguments& arguments);
bool HasFilter(const std::string& name);

// The filters for text and for sequences. Null when there is no filter `name`.
Filter FindTextFilter(const std::string& name);
Filter FindSequenceFilter(const std::string& name);

}  // namespace baton::jinja
