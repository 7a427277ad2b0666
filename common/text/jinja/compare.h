#pragma once

#include "common/base/status.h"
#include "common/text/jinja/value.h"

namespace baton::jinja {

// Python's ==: numbers and booleans compare by value, containers by content, everything else by
// identity of kind.
bool Equal(const Value& a, const Value& b);

// Python's <; InvalidArgument for kinds that have no order.
StatusOr<bool> Less(const Value& a, const Value& b);

// Equal, paid for from `budget`.
StatusOr<bool> PaidEqual(const Value& a, const Value& b, Budget& budget);

// Python's `needle in haystack`.
StatusOr<bool> Contains(const Value& haystack, const Value& needle, Budget& budget);

}  // namespace baton::jinja
