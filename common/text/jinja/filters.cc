#include "common/text/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <absl/container/flat_hash_map.h>

#include "common/text/jinja/arguments.h"
#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/methods.h"
#include "common/text/jinja/objects.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/value_json.h"
#include "common/text/jinja/value_text.h"

namespace baton::jinja {
namespace {

StatusOr<Value> Default(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("default", arguments, {"default_value", "boolean"}));
  const bool missing = input.is_undefined() || (bound.Bool(1, false) && !input.Truthy());
  if (!missing) return input;
  return bound.Has(0) ? bound[0] : interpreter.NewString("", true);
}

// float() of a string or number; nothing when `input` is not one.
std::optional<double> ParseFloat(const Value& input) {
  if (input.is_number()) return input.as_float();
  if (!input.is_string()) return std::nullopt;
  const auto [begin, end] = StripSpaces(input.str(), true, true);
  std::string_view digits = std::string_view(input.str()).substr(begin, end - begin);
  if (digits.starts_with('+')) digits.remove_prefix(1);
  double value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec != std::errc() || result.ptr != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> ParseInt(const Value& input, int base) {
  if (input.is_int() || input.is_bool()) return input.as_int();
  if (input.is_string()) {
    const auto [begin, end] = StripSpaces(input.str(), true, true);
    std::string_view digits = std::string_view(input.str()).substr(begin, end - begin);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    int64_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (result.ec == std::errc() && result.ptr == digits.data() + digits.size()) return value;
  }
  const auto number = ParseFloat(input);
  if (!number || !(std::abs(*number) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(*number);
}

StatusOr<Value> Int(Interpreter&, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("int", arguments, {"default", "base"}));
  BATON_ASSIGN_OR_RETURN(const int64_t base, bound.Int(1, 10));
  if (base < 2 || base > 36) return InvalidArgument("int() with base {}; it must be 2 to 36", base);
  if (const auto value = ParseInt(input, static_cast<int>(base))) return Value::Int(*value);
  return bound.Has(0) ? bound[0] : Value::Int(0);
}

StatusOr<Value> Float(Interpreter&, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("float", arguments, {"default"}));
  if (const auto value = ParseFloat(input)) return Value::Float(*value);
  return bound.Has(0) ? bound[0] : Value::Float(0);
}

StatusOr<Value> Abs(Interpreter& interpreter, const Value& input, const Arguments&) {
  if (input.is_float()) return Value::Float(std::abs(input.as_float()));
  if (!input.is_number()) return InvalidArgument("abs needs a number, not a {}", input.type_name());
  return input.as_int() < 0 ? Operate("-", Value::Int(0), input, interpreter.budget())
                            : Value::Int(input.as_int());
}

StatusOr<Value> Round(Interpreter&, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("round", arguments, {"precision", "method"}));
  BATON_ASSIGN_OR_RETURN(const int64_t precision, bound.Int(0, 0));
  BATON_ASSIGN_OR_RETURN(const std::string method, bound.Text(1, "common"));
  if (!input.is_number())
    return InvalidArgument("round needs a number, not a {}", input.type_name());
  if (method != "common" && method != "ceil" && method != "floor") {
    return InvalidArgument("round with method '{}'; it must be common, ceil or floor", method);
  }
  if (!input.is_float() && method == "common" && precision >= 0) return Value::Int(input.as_int());
  const double scale =
      std::pow(10.0, static_cast<double>(std::clamp<int64_t>(precision, -300, 300)));
  const double scaled = input.as_float() * scale;
  const double rounded = method == "ceil"    ? std::ceil(scaled)
                         : method == "floor" ? std::floor(scaled)
                                             : std::nearbyint(scaled);
  return Value::Float(rounded / scale);
}

StatusOr<Value> Attr(Interpreter&, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("attr", arguments, {"name"}, 1));
  BATON_ASSIGN_OR_RETURN(const std::string name, bound.Text(0, ""));
  if (input.is_namespace()) {
    const auto it = input.ns().attributes.find(name);
    if (it != input.ns().attributes.end()) return it->second;
  }
  if (auto method = FindMethod(input, name)) return *std::move(method);
  return Value::Undefined(
      fmt::format("'{} object' has no attribute '{}'", input.type_name(), name));
}

StatusOr<Value> ToJsonFilter(Interpreter& interpreter,
                             const Value& input,
                             const Arguments& arguments) {
  // The tojson of transformers: json.dumps without HTML escaping, with parameters in this order.
  BATON_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind(
          "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ascii = bound.Bool(0, false);
  style.sort_keys = bound.Bool(3, false);
  if (bound.Has(1) && !bound[1].is_none()) {
    BATON_ASSIGN_OR_RETURN(const int64_t indent, bound.Int(1, 0));
    style.indent = static_cast<int>(std::clamp<int64_t>(indent, 0, 64));
    style.item_separator.assign(1, ',');
  }
  if (bound.Has(2) && !bound[2].is_none()) {
    const Value& pair = bound[2];
    if (!pair.is_sequence() || pair.items().size() != 2 || !pair.items()[0].is_string() ||
        !pair.items()[1].is_string()) {
      return InvalidArgument("tojson: separators must be two strings");
    }
    style.item_separator = pair.items()[0].str();
    style.key_separator = pair.items()[1].str();
  }
  BATON_ASSIGN_OR_RETURN(MarkedText text, ToJson(input, style, interpreter.budget()));
  return interpreter.NewString(std::move(text));
}

Filter FindFilter(const std::string& name) {
  static const absl::flat_hash_map<std::string, Filter> table = {{"default", Default},
                                                                 {"d", Default},
                                                                 {"int", Int},
                                                                 {"float", Float},
                                                                 {"abs", Abs},
                                                                 {"round", Round},
                                                                 {"attr", Attr},
                                                                 {"tojson", ToJsonFilter}};
  if (const auto it = table.find(name); it != table.end()) return it->second;
  if (const Filter filter = FindTextFilter(name)) return filter;
  return FindSequenceFilter(name);
}

}  // namespace

StatusOr<Value> ApplyFilter(Interpreter& interpreter,
                            const std::string& name,
                            const Value& input,
                            const Arguments& arguments) {
  const Filter filter = FindFilter(name);
  if (filter == nullptr) return InvalidArgument("there is no filter named '{}'", name);
  BATON_RETURN_IF_ERROR(SpendOnArguments(arguments, interpreter.budget()));
  if (input.is_string()) {
    BATON_RETURN_IF_ERROR(interpreter.budget().SpendOnBytes(input.text().size()));
  }
  return filter(interpreter, input, arguments);
}

bool HasFilter(const std::string& name) {
  return FindFilter(name) != nullptr;
}

}  // namespace baton::jinja
