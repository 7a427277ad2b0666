#include "common/grammar/schema_values.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/grammar/schema_references.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMaxExact = 9007199254740992.0;  // 2^53
// The bound of the other side where numbers are bounded on one side.
constexpr double kMaxBounded = 1e15;

bool FitsInt64(const Json& number) {
  return !number.is_number_unsigned() ||
         number.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
}

Status CheckBound(const Json& schema, const char* name, bool integer, const std::string& path) {
  const auto found = schema.find(name);
  if (found == schema.end()) return OkStatus();
  const std::string at = fmt::format("{}/{}", path, name);
  if (!found->is_number()) return SchemaError(at, "must be a number");
  if (found->is_number_integer() ? FitsInt64(*found)
                                 : std::abs(found->get<double>()) < kMaxExact || !integer) {
    const bool whole =
        found->is_number_integer() || found->get<double>() == std::floor(found->get<double>());
    if (!integer || whole) return OkStatus();
    return SchemaError(at, "must be a whole number beside the type integer");
  }
  return SchemaError(at, "must be an integer of 64 bits");
}

}  // namespace

Status CheckExact(const Json& value, const std::string& path) {
  if (value.is_structured()) {
    for (const Json& inner : value) BATON_RETURN_IF_ERROR(CheckExact(inner, path));
    return OkStatus();
  }
  const bool exact =
      !value.is_number() ||
      (value.is_number_float() ? std::abs(value.get<double>()) < kMaxExact : FitsInt64(value));
  if (exact) return OkStatus();
  return SchemaError(path,
                     "a number is beyond what is supported: integers of 64 bits, and others below "
                     "2^53");
}

void WholeMultiples(Json& schema) {
  const auto found = schema.find("multipleOf");
  if (found == schema.end() || !found->is_number()) return;
  const auto value = found->get<double>();
  if (value < 1 || value >= kMaxExact || value != std::floor(value)) return;
  if (schema["type"] == "number") schema["type"] = "integer";
  if (schema["type"] == "integer" && value == 1) {
    schema.erase("multipleOf");
  } else {
    schema["multipleOf"] = static_cast<int64_t>(value);
  }
}

Status BoundNumber(Json& schema, bool integer, const std::string& path) {
  for (const char* name : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
    BATON_RETURN_IF_ERROR(CheckBound(schema, name, integer, path));
  }
  const bool below = schema.contains("minimum") || schema.contains("exclusiveMinimum");
  const bool above = schema.contains("maximum") || schema.contains("exclusiveMaximum");
  if (below == above) return OkStatus();
  const char* const missing = below ? "maximum" : "minimum";
  if (integer) {
    schema[missing] =
        below ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
    return OkStatus();
  }
  for (const char* name : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
    if (schema.contains(name) && std::abs(schema[name].get<double>()) >= kMaxBounded) {
      return SchemaError(fmt::format("{}/{}", path, name),
                         "10^15 and more is only supported beside a bound of the other side");
    }
  }
  schema[missing] = below ? kMaxBounded : -kMaxBounded;
  return OkStatus();
}

bool IsRangeOf(const Json& schema, int64_t most) {
  const auto bound = [&](const char* name) {
    return schema.contains(name) ? schema[name].get<double>() : std::nan("");
  };
  const double low = std::fmax(bound("minimum"), bound("exclusiveMinimum"));
  const double high = std::fmin(bound("maximum"), bound("exclusiveMaximum"));
  return std::isnan(low) || high - low <= static_cast<double>(most);
}

}  // namespace baton
