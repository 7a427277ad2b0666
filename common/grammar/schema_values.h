#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"

namespace baton {

// Checks that all numbers in a value of const or enum are known exactly: integers of 64 bits, and
// others below 2^53. Larger ones were rounded when the schema was parsed. Errors: InvalidArgument.
Status CheckExact(const nlohmann::ordered_json& value, const std::string& path);

// Writes a whole multipleOf as an integer, and lets a schema of numbers with one be a schema of
// integers, which all multiples are.
void WholeMultiples(nlohmann::ordered_json& schema);

// Checks the bounds of a schema that allows numbers, and adds those that keep the numbers within 64
// bits or a double where only one side is bounded. `integer`: all of them are integers. Errors:
// InvalidArgument with the keyword.
Status BoundNumber(nlohmann::ordered_json& schema, bool integer, const std::string& path);

// Whether the bounds of a schema of integers, if it has some, are at most `most` apart.
bool IsRangeOf(const nlohmann::ordered_json& schema, int64_t most);

}  // namespace baton
