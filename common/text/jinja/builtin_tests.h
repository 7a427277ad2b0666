#pragma once

#include <string>

#include "common/base/status.h"
#include "common/text/jinja/value.h"

namespace baton::jinja {

class Interpreter;

// `input is name(arguments)`. InvalidArgument for an unknown test or invalid arguments.
StatusOr<bool> ApplyTest(Interpreter& interpreter,
                         const std::string& name,
                         const Value& input,
                         const Arguments& arguments);

}  // namespace baton::jinja
