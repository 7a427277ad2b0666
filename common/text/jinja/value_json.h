#pragma once

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "common/text/jinja/value.h"

namespace baton::jinja {

// `json` as a value. `trusted` applies to all its strings. ResourceExhausted when it is nested too
// deeply or does not fit.
StatusOr<Value> FromJson(const nlohmann::ordered_json& json, bool trusted, Budget& budget);

struct JsonStyle {
  std::optional<int> indent;
  bool ascii = false;
  bool sort_keys = false;
  std::string item_separator = ", ";  // with an indent, "," and a new line
  std::string key_separator = ": ";
};

// Python's json.dumps. InvalidArgument for values that JSON cannot represent (undefined,
// functions).
StatusOr<MarkedText> ToJson(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace baton::jinja
