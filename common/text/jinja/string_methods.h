#pragma once

#include <string>

#include "common/base/status.h"
#include "common/text/jinja/value.h"

namespace baton::jinja {

class Interpreter;

// A method's body: its object, then the arguments.
using Method = StatusOr<Value> (*)(Interpreter&, const Value& self, const Arguments&);

// Python's str methods. Null when there is none called `name`.
Method FindStringMethod(const std::string& name);

// Those of them that ask what a string consists of: isdigit, isupper …
Method FindStringPredicate(const std::string& name);

}  // namespace baton::jinja
