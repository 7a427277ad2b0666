#pragma once

#include <string_view>

#include "common/base/status.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/value.h"

namespace baton::jinja {

// a op b for op in + - * / // % ** ~, with Python's semantics. InvalidArgument for types without
// that operation (the message names them), a division by zero, and integers beyond 64 bits.
StatusOr<Value> Operate(std::string_view op, const Value& a, const Value& b, Budget& budget);

}  // namespace baton::jinja
