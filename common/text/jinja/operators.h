#pragma once

#include <string_view>

#include "common/base/status.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/value.h"

namespace baton::jinja {

// a op b for op in + - * / // % ** ~, as Python does. InvalidArgument naming the types where there
// is no such operation, for a division by zero, and for integers beyond 64 bits.
StatusOr<Value> Operate(std::string_view op, const Value& a, const Value& b, Budget& budget);

}  // namespace baton::jinja
