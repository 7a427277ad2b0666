#pragma once

#include "common/base/status.h"
#include "common/text/jinja/value.h"

namespace baton::jinja {

// Python's ==. Numbers, booleans and strings are compared by value, containers by content,
// namespaces, functions and loops by identity; none equals none, and undefined equals undefined.
bool Equal(const Value& a, const Value& b);

// Python's <. InvalidArgument for types that have no order.
StatusOr<bool> Less(const Value& a, const Value& b);

// Equal, with its cost spent from `budget`.
StatusOr<bool> PaidEqual(const Value& a, const Value& b, Budget& budget);

// Python's `needle in haystack`.
StatusOr<bool> Contains(const Value& haystack, const Value& needle, Budget& budget);

}  // namespace baton::jinja
