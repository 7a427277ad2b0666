#pragma once

#include <string>

#include "common/base/status.h"
#include "common/text/jinja/value.h"

namespace baton::jinja {

class Interpreter;

// A method's body: its object, then the arguments.
using Method = StatusOr<Value> (*)(Interpreter&, const Value& self, const Arguments&);

// The methods of Python's str. Null when there is no method `name`.
Method FindStringMethod(const std::string& name);

// The methods of Python's str that test its characters: isdigit, isupper …
Method FindStringPredicate(const std::string& name);

}  // namespace baton::jinja
