#include "common/text/jinja/arguments.h"

#include <algorithm>

#include "common/text/jinja/objects.h"

namespace baton::jinja {

Status SpendOnArguments(const Arguments& arguments, Budget& budget) {
  size_t bytes = 0;
  for (const Value& value : arguments.positional)
    bytes += value.is_string() ? value.text().size() : 0;
  for (const auto& [name, value] : arguments.named) {
    bytes += value.is_string() ? value.text().size() : 0;
  }
  return budget.SpendOnBytes(bytes);
}

StatusOr<BoundArguments> BoundArguments::Bind(std::string_view function,
                                              const Arguments& arguments,
                                              std::initializer_list<std::string_view> names,
                                              size_t required) {
  BoundArguments bound;
  bound.function_ = function;
  bound.values_.resize(names.size());
  bound.given_.resize(names.size());
  if (arguments.positional.size() > names.size()) {
    return InvalidArgument("{}() takes {} arguments, {} were given",
                           function,
                           names.size(),
                           arguments.positional.size());
  }
  const auto set = [&bound](size_t index, const Value& value) {
    bound.values_[index] = value;
    bound.given_[index] = true;
  };
  for (size_t i = 0; i < arguments.positional.size(); ++i) set(i, arguments.positional[i]);
  for (const auto& [name, value] : arguments.named) {
    const auto* it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) return InvalidArgument("{}() has no argument '{}'", function, name);
    const auto index = static_cast<size_t>(it - names.begin());
    if (bound.given_[index]) return InvalidArgument("{}() got '{}' twice", function, name);
    set(index, value);
  }
  for (size_t i = 0; i < required; ++i) {
    if (!bound.given_[i])
      return InvalidArgument("{}() needs the argument '{}'", function, names.begin()[i]);
  }
  return bound;
}

StatusOr<int64_t> BoundArguments::Int(size_t index, int64_t fallback) const {
  const Value& value = values_[index];
  if (!given_[index] || value.is_none()) return fallback;
  if (value.is_int() || value.is_bool()) return value.as_int();
  return InvalidArgument("{}() needs an integer, not a {}", function_, value.type_name());
}

StatusOr<std::string> BoundArguments::Text(size_t index, std::string_view fallback) const {
  const Value& value = values_[index];
  if (!given_[index] || value.is_none()) return std::string(fallback);
  if (value.is_string()) return value.str();
  return InvalidArgument("{}() needs a string, not a {}", function_, value.type_name());
}

bool BoundArguments::Bool(size_t index, bool fallback) const {
  return given_[index] ? values_[index].Truthy() : fallback;
}

}  // namespace baton::jinja
