#pragma once

#include <optional>
#include <string>

#include "common/text/jinja/value.h"

namespace baton::jinja {

// The method `name`, bound to `object`: Python's methods of strings, bytes, lists, tuples and dicts
// that do not change their object, and a loop's cycle and changed. Nothing when there is none.
std::optional<Value> FindMethod(const Value& object, const std::string& name);

}  // namespace baton::jinja
