#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/text/jinja/value.h"

namespace baton::jinja {

// The method `name`, bound to `object`: Python's methods of strings, bytes, lists, tuples and dicts
// that do not change their object, and a loop's cycle and changed. Nothing when there is none.
std::optional<Value> FindMethod(const Value& object, const std::string& name);

// Whether `name` is a method of Python's dicts that templates do not get, because it changes its
// dict or makes another one. As in Python's sandbox, `x.pop` is undefined even when x has a key
// "pop".
bool IsHiddenMethod(std::string_view name);

}  // namespace baton::jinja
